//! The watches of the controllers: lists, lines, breaks, and the connections that they come through.

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use resus_core::event::hash;
use resus_core::facts::Source;
use resus_core::process::Way;
use resus_k8s::names::Places;
use resus_k8s::watcher::{Ask, Moved, Wanted, Watcher};

use crate::api::Topic;
use crate::fleet::play::server_of;
use crate::replica::{Purpose, Watching, keep};
use crate::scenario::NAMESPACE;
use crate::simulation::{Connection, Event, Heard, Sent, Simulation};

impl Simulation {
    pub(crate) fn begin_watch(&mut self, replica: usize, number: u64, source: Source, way: Way) {
        let (now, life) = (self.now(), self.replicas[replica].lives);
        let chance = hash(&[&self.scenario.seed.to_string(), &format!("{replica} {life} {number}")]);
        let places = Places::new(NAMESPACE).into();
        let wanted = Wanted { source, served: way.served, keep: keep(), places, chance };
        let Some(process) = &mut self.replicas[replica].process else { return };
        let (watcher, moved) = Watcher::begin(wanted, process.clock.read(now).mono);
        let server = way.access.map(|access| server_of(&access.0));
        process.watches.insert(number, Watching { watcher, server, call: 0, timer_at: None });
        self.moved(replica, number, moved);
    }

    pub(crate) fn end_watch(&mut self, replica: usize, number: u64) {
        let Some(process) = &mut self.replicas[replica].process else { return };
        if let Some(watching) = process.watches.remove(&number) {
            process.open.remove(&watching.call);
            self.connections.remove(&watching.call);
        }
    }

    /// A watch has come to another state.
    fn moved(&mut self, replica: usize, number: u64, Moved { inputs, ask, .. }: Moved) {
        let (now, life) = (self.now(), self.replicas[replica].lives);
        let Some(process) = &mut self.replicas[replica].process else { return };
        process.take(Some(number), inputs, now);
        let clock = &process.clock;
        let Some(watching) = process.watches.get_mut(&number) else { return };
        let wake_at = watching.watcher.wake_at().map(|at| clock.true_time(at));
        if let Some(at) = wake_at.filter(|at| watching.timer_at.is_none_or(|set| set > *at)) {
            watching.timer_at = Some(at);
            self.agenda.enter(at, Event::Timer { replica, number, life });
        }
        let Some(ask) = ask else { return };
        self.give_up(replica, number);
        let Some(process) = &mut self.replicas[replica].process else { return };
        let Some(watching) = process.watches.get_mut(&number) else { return };
        let server = watching.server.clone();
        if server.as_ref().is_some_and(|server| !self.remotes.contains_key(server))
            && let Some(cluster) = watching.watcher.source().cluster().cloned()
        {
            let moved = watching.watcher.on_no_access(&cluster, "it is no kubeconfig", process.clock.read(now).mono);
            return self.moved(replica, number, moved);
        }
        let (Ask::Page(request, _) | Ask::Watch(request)) = ask;
        let intent = self.intent(replica, None);
        let call = self.send(replica, Sent { request, server, effect: None, intent, patience: None });
        let Some(process) = &mut self.replicas[replica].process else { return };
        process.open.insert(call, (Purpose::Watch(number), now));
        if let Some(watching) = process.watches.get_mut(&number) {
            watching.call = call;
        }
    }

    /// What was asked is of no interest any more.
    fn give_up(&mut self, replica: usize, number: u64) {
        let Some(process) = &mut self.replicas[replica].process else { return };
        let Some(watching) = process.watches.get_mut(&number) else { return };
        process.open.remove(&watching.call);
        self.connections.remove(&watching.call);
        watching.call = 0;
    }

    pub(crate) fn timer(&mut self, replica: usize, number: u64, life: u32) {
        let now = self.now();
        if !self.is_present(replica, life) {
            return;
        }
        // Who wakes up late finds what has come before that it is late.
        let until = self.replicas[replica].frozen_until;
        if until > now {
            return self.agenda.enter(until + 1, Event::Timer { replica, number, life });
        }
        let Some(process) = &mut self.replicas[replica].process else { return };
        let read = process.clock.read(now).mono;
        let Some(watching) = process.watches.get_mut(&number) else { return };
        if watching.timer_at.is_some_and(|at| at <= now) {
            watching.timer_at = None;
        }
        let is_due = watching.watcher.wake_at().is_some_and(|at| at <= read);
        let moved = watching.watcher.on_time(read);
        if is_due {
            self.give_up(replica, number);
        }
        self.moved(replica, number, moved);
        self.settle(replica);
    }

    pub(crate) fn hear_watch(&mut self, replica: usize, call: u64, number: u64, heard: Heard) {
        let now = self.now();
        let Some(process) = &mut self.replicas[replica].process else { return };
        let read = process.clock.read(now).mono;
        let Some(watching) = process.watches.get_mut(&number).filter(|watching| watching.call == call) else { return };
        match heard {
            Heard::Answer { response, .. } => {
                let moved = watching.watcher.on_head(response.status(), response.headers(), read);
                let after = watching.watcher.on_body(response.body(), read);
                self.moved(replica, number, moved);
                self.moved(replica, number, after);
            }
            Heard::Lost => {
                let moved = watching.watcher.on_lost("the connection was lost", read);
                self.moved(replica, number, moved);
            }
            Heard::Opened { watch, date } => {
                let headers: HeaderMap = [(header::DATE, date)].into_iter().collect();
                let moved = watching.watcher.on_head(StatusCode::OK, &headers, read);
                let (topic, server) = (topic(watching.watcher.source()), watching.server.clone());
                let connection = Connection { replica, topic, number, server, watch: *watch, pulling: true, due_at: now };
                self.connections.insert(call, connection);
                self.agenda.enter(now, Event::Pull(call));
                self.moved(replica, number, moved);
            }
        }
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

    pub(crate) fn lines(&mut self, connection: u64, lines: Vec<Bytes>, ended: bool) {
        let now = self.now();
        let Some(Connection { replica, number, .. }) = self.connections.get(&connection) else { return };
        let (replica, number) = (*replica, *number);
        if self.replicas[replica].frozen_until > now {
            let until = self.replicas[replica].frozen_until;
            return self.agenda.enter(until, Event::Lines { connection, lines, ended });
        }
        let Some(process) = &mut self.replicas[replica].process else { return };
        let read = process.clock.read(now).mono;
        let Some(watching) = process.watches.get_mut(&number).filter(|watching| watching.call == connection) else { return };
        let moved = watching.watcher.on_bytes(&lines.concat(), read);
        self.moved(replica, number, moved);
        if ended {
            self.close(connection);
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
    pub(crate) fn close(&mut self, connection: u64) {
        let now = self.now();
        let Some(open) = self.connections.get_mut(&connection) else { return };
        let until = self.replicas[open.replica].frozen_until;
        if until > now {
            open.pulling = true; // Nothing is read from it any more.
            return self.agenda.enter(until, Event::Lines { connection, lines: Vec::new(), ended: true });
        }
        let Some(Connection { replica, number, .. }) = self.connections.remove(&connection) else { return };
        let Some(process) = &mut self.replicas[replica].process else { return };
        let read = process.clock.read(now).mono;
        let Some(watching) = process.watches.get_mut(&number).filter(|watching| watching.call == connection) else { return };
        let moved = watching.watcher.on_close(read);
        self.moved(replica, number, moved);
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
