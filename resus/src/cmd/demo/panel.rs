//! How does the whole cluster look now, in a few rows?

use std::collections::BTreeMap;

use resus_sim::clock::{Millis, SECOND};

use super::paint::Paint;
use super::script::{CHECK, Script};
use super::story::{Line, State};

/// A name with its symbol takes a column; zones whose columns do not fit show symbols alone.
const GAP: usize = 2;
/// `zone a` and the space behind it.
const MARGIN: usize = 9;

pub struct Panel {
    zones: Vec<(String, Vec<String>)>,
    states: BTreeMap<String, State>,
    allowed: usize,
}

impl State {
    const ALL: [State; 6] = [State::Healthy, State::Broken, State::Pending, State::Unhealthy, State::Repairing, State::Rebooting];

    fn word(self) -> &'static str {
        match self {
            State::Healthy => "healthy",
            State::Broken => "broken, not yet noticed",
            State::Pending => "pending",
            State::Unhealthy => "unhealthy",
            State::Repairing => "being repaired",
            State::Rebooting => "rebooting",
        }
    }
}

impl Panel {
    pub fn new(script: &Script) -> Panel {
        let zones: Vec<(String, Vec<String>)> = script.zones.iter().map(|zone| (zone.name.clone(), zone.nodes.clone())).collect();
        let states = zones.iter().flat_map(|(_, nodes)| nodes.iter().map(|node| (node.clone(), State::Healthy))).collect();
        Panel { zones, states, allowed: script.allowed }
    }

    pub fn take(&mut self, line: &Line) {
        if let Some(state) = line.state {
            self.states.extend(line.nodes.iter().map(|node| (node.clone(), state)));
        }
    }

    /// No row is wider than `width`, colours aside; if there are more than `rows`, one row says it all.
    pub fn draw(&self, at: Millis, width: usize, rows: usize, paint: &Paint) -> Vec<String> {
        let mut drawn = vec![paint.rule(width)];
        drawn.extend(self.zones.iter().flat_map(|(zone, nodes)| self.zone(zone, nodes, width, paint)));
        drawn.push(self.check(at, width, paint));
        drawn.push(legend(width, paint));
        match drawn.len() <= rows {
            true => drawn,
            false => vec![self.check(at, width, paint)],
        }
    }

    fn zone(&self, zone: &str, nodes: &[String], width: usize, paint: &Paint) -> Vec<String> {
        let longest = self.states.keys().map(String::len).max().unwrap_or(0);
        let column = longest + GAP + GAP;
        let room = width.saturating_sub(MARGIN).max(1);
        let (per_row, is_named) = if nodes.len() * column <= room { (nodes.len().max(1), true) } else { (room, false) };
        let cell = |node: &String| {
            let state = self.states.get(node).copied().unwrap_or(State::Healthy);
            match is_named {
                true => paint.state(state, &format!("{} {node:longest$}{:GAP$}", paint.symbol(state), "")),
                false => paint.state(state, paint.symbol(state)),
            }
        };
        let mut label = format!("zone {zone}");
        let mut rows = Vec::new();
        for nodes in nodes.chunks(per_row) {
            let cells: String = nodes.iter().map(cell).collect();
            rows.push(format!("{:MARGIN$}{cells}", std::mem::take(&mut label)));
        }
        rows
    }

    fn check(&self, at: Millis, width: usize, paint: &Paint) -> String {
        let count = |states: &[State]| self.states.values().filter(|state| states.contains(state)).count();
        let under_way = count(&[State::Repairing, State::Rebooting]);
        let not_healthy = under_way + count(&[State::Pending, State::Unhealthy]);
        let text = format!(
            "{}   check {CHECK}: {not_healthy} of {} not healthy, at most {} may be; {under_way} under repair",
            clock(at),
            self.states.len(),
            self.allowed
        );
        let text = clip(&text, width);
        match (not_healthy > self.allowed, not_healthy > 0) {
            (true, _) => paint.state(State::Unhealthy, &text),
            (false, true) => paint.state(State::Pending, &text),
            (false, false) => paint.state(State::Healthy, &text),
        }
    }
}

pub fn clock(at: Millis) -> String {
    let seconds = at / SECOND;
    format!("{:02}:{:02}", seconds / 60, seconds % 60)
}

/// As many of the symbols as fit.
fn legend(width: usize, paint: &Paint) -> String {
    let (mut drawn, mut used) = (String::new(), 0);
    for state in State::ALL {
        let entry = format!("{} {}   ", paint.symbol(state), state.word());
        used += entry.chars().count();
        if used > width {
            break;
        }
        drawn.push_str(&paint.state(state, &entry));
    }
    drawn
}

fn clip(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(workers: usize, width: usize, rows: usize) -> Vec<String> {
        Panel::new(&Script::new(workers)).draw(754 * SECOND, width, rows, &Paint::plain())
    }

    #[test]
    fn a_panel_is_never_wider_or_higher_than_its_room() {
        for workers in [3, 12, 60, 300] {
            for width in [40, 80, 200] {
                for height in [1, 6, 12] {
                    let rows = rows(workers, width, height);
                    assert!(rows.len() <= height, "{workers} workers: {} rows of {height}", rows.len());
                    let widest = rows.iter().map(|row| row.chars().count()).max();
                    assert!(widest <= Some(width), "{workers} workers: {widest:?} of {width}\n{}", rows.join("\n"));
                }
            }
        }
    }

    #[test]
    fn it_shows_names_where_there_is_room_and_every_node_where_there_is_not() {
        assert!(rows(12, 80, 12)[1].contains("worker-4"));
        let symbols: usize = rows(300, 80, 20)[1..].iter().map(|row| row.matches('o').count()).sum();
        assert!(symbols >= 300, "{symbols}");
        assert!(rows(12, 80, 12)[4].starts_with("12:34   check workers: 0 of 12 not healthy, at most 3 may be"));
    }

    #[test]
    fn it_counts_what_resus_counts() {
        let mut panel = Panel::new(&Script::new(12));
        for (node, state) in [("worker-1", State::Broken), ("worker-2", State::Pending), ("worker-3", State::Rebooting)] {
            panel.states.insert(node.to_owned(), state);
        }
        assert!(panel.check(0, 80, &Paint::plain()).contains("2 of 12 not healthy, at most 3 may be; 1 under repair"));
    }
}
