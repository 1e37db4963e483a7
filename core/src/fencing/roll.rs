//! Who has a voice when the API is gone, and what must they all know?
//!
//! One object of the controller with a growing number. Who shows a number in its Lease knows the orders that the roll had then,
//! never forgets them, and counts with the electors that it named then. So the controller can wait until enough of them
//! know of an order, and after that no vote can be won against it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::facts::Name;
use crate::time::Mono;

/// Up to so many all agents are electors; of more, these are enough, and 5,000 that ask do not drown them.
pub const ELECTORS_MAX: usize = 51;

/// Who has not renewed its Lease for so long has no voice: machines that are off for long must not outvote those that run.
const LIVING_FOR: Duration = Duration::from_secs(600);

/// The number of agents is told in steps: that one more came is no news.
const AGENTS_STEP: usize = 500;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Roll {
    pub number: u64,
    /// For how many agents there is room, electors or not: how often they renew depends on it.
    pub agents: usize,
    pub electors: BTreeSet<Name>,
    /// The electors of earlier numbers, as long as a Lease names one.
    pub earlier: BTreeMap<u64, BTreeSet<Name>>,
    pub orders: BTreeSet<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    pub node: Name,
    pub boot: Name,
    /// The number of the roll that had it first.
    pub since: u64,
}

/// An agent that renewed its Lease lately.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Voter {
    pub node: Name,
    pub zone: Name,
    /// The number that its Lease shows.
    pub roll: u64,
}

impl Roll {
    /// The electors that a Lease with this number counts with.
    pub fn list(&self, number: u64) -> Option<&BTreeSet<Name>> {
        if number == self.number { Some(&self.electors) } else { self.earlier.get(&number) }
    }

    pub fn entry(&self, node: &Name, boot: &Name) -> Option<&Entry> {
        self.orders.iter().find(|entry| entry.node == *node && entry.boot == *boot)
    }

    /// The roll that should stand there now; none if this one is right. `named` are the numbers in all Leases, of the living and
    /// the dead.
    pub fn next(&self, voters: &[Voter], named: &BTreeSet<u64>, orders: &BTreeSet<(Name, Name)>) -> Option<Roll> {
        let electors = choose(voters, &self.electors);
        let is_wanted = |entry: &&Entry| orders.contains(&(entry.node.clone(), entry.boot.clone()));
        let kept: BTreeSet<Entry> = self.orders.iter().filter(is_wanted).cloned().collect();
        let added: Vec<&(Name, Name)> = orders.iter().filter(|(node, boot)| self.entry(node, boot).is_none()).collect();
        let agents = voters.len().next_multiple_of(AGENTS_STEP);
        let is_same = electors == self.electors && kept.len() == self.orders.len() && added.is_empty() && agents == self.agents;
        if is_same {
            return None;
        }
        let number = self.number + 1;
        let mut earlier = self.earlier.clone();
        earlier.insert(self.number, self.electors.clone());
        earlier.retain(|number, _| named.contains(number));
        let entry = |(node, boot): &(Name, Name)| Entry { node: node.clone(), boot: boot.clone(), since: number };
        let orders = kept.into_iter().chain(added.into_iter().map(entry)).collect();
        Some(Roll { number, agents, electors, earlier, orders })
    }
}

/// Does an agent that renewed its Lease then have a voice?
pub fn is_living(renewed_at: Mono, now: Mono) -> bool {
    now.since(renewed_at) < LIVING_FOR
}

/// All, or a few of each zone. Whoever is an elector stays one as long as it lives: each change costs everybody a renewal.
fn choose(voters: &[Voter], now: &BTreeSet<Name>) -> BTreeSet<Name> {
    let mut zones: BTreeMap<&Name, Vec<&Name>> = BTreeMap::new();
    for voter in voters {
        zones.entry(&voter.zone).or_default().push(&voter.node);
    }
    for nodes in zones.values_mut() {
        // Taken from the end.
        nodes.sort_by_key(|node| (now.contains(*node), *node));
    }
    let mut chosen = BTreeSet::new();
    while chosen.len() < ELECTORS_MAX && zones.values().any(|nodes| !nodes.is_empty()) {
        for nodes in zones.values_mut() {
            if let Some(node) = nodes.pop().filter(|_| chosen.len() < ELECTORS_MAX) {
                chosen.insert(node.clone());
            }
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters(zones: &[(&str, usize)]) -> Vec<Voter> {
        let of = |(zone, count): &(&str, usize)| {
            let zone = Name::from(*zone);
            (0..*count)
                .map(move |n| Voter { node: format!("{zone}{n:04}").into(), zone: zone.clone(), roll: 0 })
                .collect::<Vec<_>>()
        };
        zones.iter().flat_map(of).collect()
    }

    fn next(roll: &Roll, voters: &[Voter], orders: &[(&str, &str)]) -> Option<Roll> {
        let named = voters.iter().map(|voter| voter.roll).collect();
        roll.next(voters, &named, &orders.iter().map(|(node, boot)| ((*node).into(), (*boot).into())).collect())
    }

    #[test]
    fn up_to_the_limit_everybody_is_an_elector() {
        for count in [1, 2, 50, 51] {
            let roll = next(&Roll::default(), &voters(&[("a", count)]), &[]).expect("the first roll");
            assert_eq!((roll.number, roll.electors.len(), roll.agents), (1, count, 500));
        }
    }

    #[test]
    fn above_the_limit_they_are_spread_over_zones_and_stay_while_they_live() {
        let mut all = voters(&[("a", 4000), ("b", 900), ("c", 5)]);
        let roll = next(&Roll::default(), &all, &[]).expect("the first roll");
        let of = |zone: &str| roll.electors.iter().filter(|node| node.starts_with(zone)).count();
        assert_eq!([of("a"), of("b"), of("c")], [23, 23, 5]);
        assert_eq!(next(&roll, &all, &[]), None, "nothing to change");

        let (dead, others) = (roll.electors.first().cloned().expect("one"), roll.electors.len() - 1);
        all.retain(|voter| voter.node != dead);
        let after = next(&roll, &all, &[]).expect("another roll");
        assert_eq!(after.electors.len(), ELECTORS_MAX);
        assert_eq!(after.electors.intersection(&roll.electors).count(), others, "all others stay");
    }

    #[test]
    fn an_order_has_the_number_that_had_it_first_and_lists_that_leases_name_are_kept() {
        let mut all = voters(&[("a", 3)]);
        let first = next(&Roll::default(), &all, &[]).expect("the first roll");
        let ordered = next(&first, &all, &[("a0000", "b1")]).expect("an order");
        assert_eq!(ordered.entry(&"a0000".into(), &"b1".into()).map(|entry| entry.since), Some(2));
        assert_eq!(ordered.list(1), None, "no Lease names it");

        for voter in &mut all {
            voter.roll = 2;
        }
        let two = next(&ordered, &all[1..], &[("a0000", "b1"), ("a0001", "b7")]).expect("another");
        assert_eq!(two.entry(&"a0000".into(), &"b1".into()).map(|entry| entry.since), Some(2));
        assert_eq!(two.entry(&"a0001".into(), &"b7".into()).map(|entry| entry.since), Some(3));
        assert_eq!((two.list(2).map(BTreeSet::len), two.list(3).map(BTreeSet::len)), (Some(3), Some(2)));
        let none = next(&two, &all[1..], &[]).expect("they are over");
        assert!(none.orders.is_empty() && none.number == 4);
    }
}
