//! The watches of the controllers: lists, lines, breaks, and the connections that they come through.

use bytes::Bytes;
use resus_core::facts::Source;
use resus_core::input::Input;

use crate::api::Topic;
use crate::replica::{Purpose, Watching, Way};
use crate::simulation::{Connection, Event, Heard, Sent, Simulation};
use crate::watcher::{ANSWER_WITHIN, Moved, Watcher};

impl Simulation {
    pub(crate) fn begin_watch(&mut self, replica: usize, source: &Source, way: Way) {
        let now = self.now();
        let is_known = way.server.as_ref().is_none_or(|server| self.remotes.contains_key(server));
        let (watcher, moved) = Watcher::begin(source.clone(), way.served.clone(), now);
        let Some(process) = &mut self.replicas[replica].process else { return };
        process.watches.insert(source.clone(), Watching { way, watcher, call: 0, timer_at: None });
        // As in the driver: a watch without a kubeconfig that can be used never begins.
        if let (Source::RemoteNodes(cluster) | Source::RemoteEtcd(cluster), false) = (source, is_known) {
            let (cluster, why) = (cluster.clone(), "it is no kubeconfig".into());
            return process.take(vec![Input::NoAccess { cluster, why }], now);
        }
        self.moved(replica, source, moved);
    }

    /// A watch has come to another state.
    fn moved(&mut self, replica: usize, source: &Source, moved: Moved) {
        let (now, life) = (self.now(), self.replicas[replica].lives);
        let Some(process) = &mut self.replicas[replica].process else { return };
        process.take(moved.inputs, now);
        let Some(watching) = process.watches.get_mut(source) else { return };
        if let Some(at) = watching.watcher.timer().filter(|at| watching.timer_at.is_none_or(|set| set > *at)) {
            watching.timer_at = Some(at);
            self.agenda.enter(at, Event::Timer { replica, source: source.clone(), life });
        }
        if let Some(request) = moved.ask {
            let (old, server) = (watching.call, watching.way.server.clone());
            let intent = self.intent(replica, None);
            let call = self.send(replica, Sent { request, server, effect: None, intent, patience: ANSWER_WITHIN });
            self.connections.remove(&old);
            let Some(process) = &mut self.replicas[replica].process else { return };
            process.open.remove(&old);
            process.open.insert(call, (Purpose::Watch(source.clone()), now));
            if let Some(watching) = process.watches.get_mut(source) {
                watching.call = call;
            }
        }
    }

    pub(crate) fn timer(&mut self, replica: usize, source: &Source, life: u32) {
        if !self.is_present(replica, life) || self.postponed(replica, || Event::Timer { replica, source: source.clone(), life }) {
            return;
        }
        let now = self.now();
        let Some(process) = &mut self.replicas[replica].process else { return };
        let Some(watching) = process.watches.get_mut(source) else { return };
        if watching.timer_at.is_some_and(|at| at <= now) {
            watching.timer_at = None;
        }
        let moved = watching.watcher.on_time(now);
        self.moved(replica, source, moved);
        self.settle(replica);
    }

    pub(crate) fn hear_watch(&mut self, replica: usize, call: u64, source: &Source, heard: Heard) {
        let now = self.now();
        let Some(process) = &mut self.replicas[replica].process else { return };
        let Some(watching) = process.watches.get_mut(source).filter(|watching| watching.call == call) else { return };
        let moved = match heard {
            Heard::Answer { response, .. } => watching.watcher.on_answer(&response, now),
            Heard::Lost => watching.watcher.on_lost(now),
            Heard::Opened(watch) => {
                watching.watcher.on_open(now);
                let (source, server) = (source.clone(), watching.way.server.clone());
                let connection =
                    Connection { replica, topic: topic(&source), source, server, watch: *watch, pulling: true, due_at: now };
                self.connections.insert(call, connection);
                self.agenda.enter(now, Event::Pull(call));
                Moved::default()
            }
        };
        self.moved(replica, source, moved);
        self.settle(replica);
    }

    /// Watches on these topics have something to say, or may have.
    pub(crate) fn pull(&mut self, server: Option<&str>, about: impl Fn(Topic) -> bool) {
        let latency = self.net.latency();
        let on_server = self.connections.iter_mut().filter(|(_, connection)| connection.server.as_deref() == server);
        for (number, connection) in on_server {
            if !connection.pulling && connection.topic.is_none_or(&about) {
                connection.pulling = true;
                self.agenda.after(latency, Event::Pull(*number));
            }
        }
    }

    pub(crate) fn pull_all(&mut self) {
        self.pull(None, |_| true);
        for server in self.remotes.keys().cloned().collect::<Vec<_>>() {
            self.pull(Some(&server), |_| true);
        }
    }

    pub(crate) fn read_connection(&mut self, number: u64) {
        let now = self.now();
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.pulling = false;
        // What a cut link holds back comes when it is whole again.
        if self.net.is_cut(connection.replica) {
            return;
        }
        let api = match &connection.server {
            None => &self.api,
            Some(server) => match self.remotes.get(server).filter(|remote| !remote.hangs) {
                Some(remote) => &remote.api,
                None => return,
            },
        };
        let followed = api.follow(now, &mut connection.watch);
        if followed.lines.is_empty() && !followed.ended {
            return;
        }
        connection.due_at = connection.due_at.max(now + self.net.lag_of(connection.replica));
        let event = Event::Lines { connection: number, lines: followed.lines, ended: followed.ended };
        self.agenda.enter(connection.due_at, event);
    }

    pub(crate) fn lines(&mut self, number: u64, lines: Vec<Bytes>, ended: bool) {
        let now = self.now();
        let Some(connection) = self.connections.get(&number) else { return };
        let (replica, source) = (connection.replica, connection.source.clone());
        if self.replicas[replica].frozen_until > now {
            let until = self.replicas[replica].frozen_until;
            return self.agenda.enter(until, Event::Lines { connection: number, lines, ended });
        }
        let Some(process) = &mut self.replicas[replica].process else { return };
        let Some(watching) = process.watches.get_mut(&source).filter(|watching| watching.call == number) else { return };
        let moved = watching.watcher.on_lines(&lines, now);
        self.moved(replica, &source, moved);
        if ended {
            self.close(number);
        }
        self.settle(replica);
    }

    /// All connections to this server break.
    pub(crate) fn close_all(&mut self, server: Option<&str>) {
        let open = self.connections.iter().filter(|(_, connection)| connection.server.as_deref() == server);
        let open: Vec<u64> = open.map(|(number, _)| *number).collect();
        open.into_iter().for_each(|connection| self.close(connection));
    }

    /// The connection breaks, and the client notices, if it does not stand still.
    pub(crate) fn close(&mut self, number: u64) {
        let now = self.now();
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let until = self.replicas[connection.replica].frozen_until;
        if until > now {
            connection.pulling = true; // Nothing is read from it any more.
            return self.agenda.enter(until, Event::Lines { connection: number, lines: Vec::new(), ended: true });
        }
        let Some(Connection { replica, source, .. }) = self.connections.remove(&number) else { return };
        let Some(process) = &mut self.replicas[replica].process else { return };
        let Some(watching) = process.watches.get_mut(&source).filter(|watching| watching.call == number) else { return };
        let moved = watching.watcher.on_close(now);
        self.moved(replica, &source, moved);
        self.settle(replica);
    }
}

fn topic(source: &Source) -> Option<Topic> {
    match source {
        Source::Nodes => Some(Topic::Nodes),
        Source::Checks => Some(Topic::Checks),
        Source::Kinds => Some(Topic::Definitions),
        Source::NodeLeases | Source::Rivals(_) => Some(Topic::Leases),
        Source::Etcd | Source::Guards => Some(Topic::Pods),
        // Nobody in the simulation writes these.
        Source::Signals(_) | Source::Budgets | Source::OwnNamespace => None,
        Source::Objects(kind) => Topic::of(&format!("{}s", kind.kind.to_lowercase())),
        Source::MachineChecks(_) | Source::Machines(_) | Source::Clusters(_) | Source::Access(_) => Some(Topic::Machines),
        Source::RemoteNodes(_) | Source::RemoteEtcd(_) => None,
    }
}
