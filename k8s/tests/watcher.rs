//! How a source is followed, in virtual time: what is asked, when, and what the loop hears of it.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use resus_core::facts::{Kind, Served, Source};
use resus_core::input::Input;
use resus_core::mhc::facts::ClusterKey;
use resus_core::time::Mono;
use resus_core::world::STALE_AFTER;
use resus_k8s::limits::{LINE_MAX, PAGE_MIN};
use resus_k8s::names::Places;
use resus_k8s::watcher::{Ask, Moved, News, Wanted, Watcher};

const STALE: i64 = STALE_AFTER.as_millis() as i64;

/// A watcher, and what it said last.
struct Line {
    watcher: Watcher,
    now: i64,
    inputs: Vec<Input>,
    news: Vec<News>,
    asked: Option<String>,
    /// How many bytes of an answer are read at most; none: it is a watch.
    page: Option<usize>,
}

fn blue() -> ClusterKey {
    ClusterKey { namespace: "ns".into(), name: "blue".into() }
}

fn objects() -> Source {
    Source::Objects(Kind { api_version: "p.test/v1".into(), kind: "Reboot".into() })
}

impl Line {
    fn begin(source: Source) -> Line {
        Line::with(source, 7)
    }

    fn with(source: Source, chance: u64) -> Line {
        let served = matches!(source, Source::Objects(_)).then(|| Served { plural: "reboots".into(), namespaced: true });
        let places = Arc::new(Places::new("resus"));
        let wanted = Wanted { source, served, keep: Arc::default(), places, chance };
        let (watcher, moved) = Watcher::begin(wanted, Mono(0));
        let mut line = Line { watcher, now: 0, inputs: Vec::new(), news: Vec::new(), asked: None, page: None };
        line.moved(moved);
        line
    }

    /// Listed, and its watch is open.
    fn watching(source: Source) -> Line {
        let mut line = Line::begin(source);
        line.page("7", None);
        assert!(line.watches().contains("resourceVersion=7"));
        line.opens();
        line
    }

    fn moved(&mut self, Moved { inputs, ask, news }: Moved) {
        (self.inputs, self.news) = (inputs, news);
        let uri = |request: http::Request<Vec<u8>>| Some(request.uri().to_string());
        (self.asked, self.page) = match ask {
            None => (None, None),
            Some(Ask::Page(request, bytes)) => (uri(request), Some(bytes)),
            Some(Ask::Watch(request)) => (uri(request), None),
        };
    }

    fn lists(&self) -> &str {
        let asked = self.asked.as_deref().expect("something is asked");
        assert!(self.page.is_some() && !asked.contains("watch=true"), "{asked}");
        asked
    }

    fn watches(&self) -> &str {
        let asked = self.asked.as_deref().expect("something is asked");
        assert!(self.page.is_none() && asked.contains("watch=true&allowWatchBookmarks=true"), "{asked}");
        asked
    }

    fn answers(&mut self, code: u16, body: &str) {
        let code = StatusCode::from_u16(code).expect("it is a code");
        let moved = self.watcher.on_head(code, &HeaderMap::new(), Mono(self.now));
        assert!(moved.inputs.is_empty() && moved.ask.is_none());
        let moved = self.watcher.on_body(body.as_bytes(), Mono(self.now));
        self.moved(moved);
    }

    fn page(&mut self, version: &str, next: Option<&str>) {
        let next = next.map(|next| format!(r#","continue":"{next}""#)).unwrap_or_default();
        self.answers(200, &format!(r#"{{"metadata":{{"resourceVersion":"{version}"{next}}},"items":[]}}"#));
    }

    fn opens(&mut self) {
        let moved = self.watcher.on_head(StatusCode::OK, &HeaderMap::new(), Mono(self.now));
        self.moved(moved);
        assert!(self.watcher.is_following());
    }

    fn says(&mut self, line: &str) {
        let moved = self.watcher.on_bytes(format!("{line}\n").as_bytes(), Mono(self.now));
        self.moved(moved);
    }

    fn bookmark(&mut self, version: &str) {
        self.says(&format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{version}"}}}}}}"#));
    }

    fn closes(&mut self) {
        let moved = self.watcher.on_close(Mono(self.now));
        self.moved(moved);
    }

    fn is_lost(&mut self) {
        let moved = self.watcher.on_lost("connection refused", Mono(self.now));
        self.moved(moved);
    }

    /// To the moment for which it wants to be woken; returns how long that is.
    fn wakes(&mut self) -> i64 {
        let at = self.watcher.wake_at().expect("it wants to be woken").0;
        let waited = at - self.now;
        let early = self.watcher.on_time(Mono(at - 1));
        assert!(waited == 0 || early.inputs.is_empty() && early.ask.is_none() && early.news.is_empty(), "it is not time yet");
        self.now = at;
        let moved = self.watcher.on_time(Mono(at));
        self.moved(moved);
        waited
    }

    fn trouble(&self) -> Vec<&str> {
        self.news.iter().filter_map(|news| if let News::Trouble { why } = news { Some(why.as_str()) } else { None }).collect()
    }
}

#[test]
fn a_list_is_asked_for_in_pages_and_then_watched_from_where_it_ended() {
    let mut line = Line::begin(Source::Nodes);
    assert_eq!((line.lists(), &line.inputs[..]), ("/api/v1/nodes?limit=100", &[Input::Listing(Source::Nodes)][..]));
    line.page("7", Some("more"));
    assert_eq!((line.lists(), &line.inputs[..]), ("/api/v1/nodes?limit=100&continue=more", &[][..]));
    line.page("8", None);
    assert!(line.watches().contains("resourceVersion=8"));
    assert_eq!((&line.inputs[..], &line.news[..]), (&[Input::Listed(Source::Nodes)][..], &[News::Listed { objects: 0 }][..]));
}

#[test]
fn a_watch_that_closes_is_resumed_and_listed_anew_if_it_stays_silent() {
    let mut line = Line::watching(Source::Nodes);
    line.bookmark("9");
    assert_eq!(line.inputs, [Input::Heard(Source::Nodes)]);
    line.closes();
    assert_eq!((&line.inputs[..], &line.news[..]), (&[Input::Broken(Source::Nodes)][..], &[News::Ended][..]));
    line.wakes();
    assert!(line.watches().contains("resourceVersion=9"));
    line.opens();
    assert_eq!(line.wakes(), 2_000);
    assert_eq!(line.inputs, [Input::Broken(Source::Nodes)]);
    line.wakes();
    line.lists();
    // One that says something has a minute again.
    line.page("12", None);
    line.opens();
    line.closes();
    line.wakes();
    line.opens();
    line.now += 1_000;
    line.bookmark("13");
    assert_eq!(line.wakes(), STALE);
    assert_eq!(line.inputs, [Input::Broken(Source::Nodes)]);
}

#[test]
fn a_watch_right_after_its_list_may_be_silent_for_longer() {
    let mut line = Line::watching(Source::Nodes);
    assert_eq!(line.wakes(), STALE);
    assert_eq!(line.inputs, [Input::Broken(Source::Nodes)]);
    line.wakes();
    line.lists();
}

/// It is no break: nothing was missed. Later it is one.
#[test]
fn a_version_that_expires_is_listed_anew() {
    let expired = r#"{"type":"ERROR","object":{"code":410}}"#;
    let mut line = Line::watching(Source::Nodes);
    line.says(expired);
    assert_eq!(line.inputs, []);
    line.wakes();
    line.lists();
    line.page("9", None);
    line.opens();
    line.bookmark("10");
    line.says(expired);
    assert_eq!(line.inputs, [Input::Broken(Source::Nodes)]);
    assert_eq!(line.trouble(), [""; 0]);
    line.wakes();
    line.lists();
    // At once, instead of a watch.
    line.page("11", None);
    line.answers(410, "");
    assert_eq!(line.inputs, []);
    line.wakes();
    line.lists();
    // In the middle of a list.
    line.page("12", Some("more"));
    line.answers(410, r#"{"message": "too old"}"#);
    assert_eq!((&line.inputs[..], line.trouble()), (&[][..], vec![]));
    line.wakes();
    assert_eq!(line.lists(), "/api/v1/nodes?limit=100");
}

/// What is too large for us, or for a slow moment, is asked for in halves, from where it began, and in larger pieces again in the
/// next list.
#[test]
fn pages_get_smaller_until_they_fit() {
    let mut line = Line::begin(Source::RemoteNodes(blue()));
    assert_eq!(line.page, Some(4 << 20));
    line.page("", Some("here"));
    let moved = line.watcher.on_too_large("the answer is larger than 5 bytes".into(), Mono(line.now));
    line.moved(moved);
    assert_eq!(line.lists(), "/api/v1/nodes?limit=50&continue=here");
    assert_eq!(line.news, [News::Smaller { page: 50, why: "the answer is larger than 5 bytes".into() }]);
    assert_eq!(line.wakes(), 10_000);
    assert_eq!(line.lists(), "/api/v1/nodes?limit=25&continue=here");
    for page in [12, 6, 3] {
        line.wakes();
        assert!(line.lists().starts_with(&format!("/api/v1/nodes?limit={page}&")));
    }
    assert_eq!(PAGE_MIN, 3);
    line.wakes();
    assert_eq!((line.trouble(), line.asked.as_deref()), (vec!["no answer in time"], None));
    line.wakes();
    assert_eq!(line.lists(), "/api/v1/nodes?limit=6", "a list begins from its beginning");
}

#[test]
fn a_refusal_is_heard_and_told_once() {
    let mut line = Line::begin(objects());
    line.answers(404, r#"{"message": "no such kind"}"#);
    assert_eq!(line.inputs, [Input::NotServed(objects())]);
    assert_eq!(line.trouble(), ["no such kind (404)"]);
    line.wakes();
    line.lists();
    line.answers(403, "");
    assert_eq!(line.inputs, [Input::Forbidden(objects())]);
    assert_eq!(line.trouble(), [""; 0], "there is trouble still");
    line.wakes();
    line.page("7", None);
    line.answers(500, "");
    assert_eq!(line.inputs, [Input::Broken(objects())]);
    assert_eq!(line.trouble(), ["500 Internal Server Error (500)"], "after a list it is news again");
    let mut checks = Line::begin(Source::Checks);
    checks.answers(404, "");
    assert_eq!(checks.trouble(), ["404 Not Found (404): apply deploy/crds"]);
    let mut remote = Line::begin(Source::RemoteNodes(blue()));
    remote.answers(401, r#"{"message": "token canary is not known"}"#);
    assert_eq!(remote.trouble(), ["the credentials of its kubeconfig are not accepted (401)"]);
}

#[test]
fn what_may_not_be_watched_is_listed_now_and_then() {
    let mut line = Line::begin(objects());
    line.page("7", None);
    line.answers(403, "");
    assert_eq!(line.inputs, [Input::Polled(objects())]);
    assert!(
        matches!(&line.news[..], [News::Ended, News::Polled { every, .. }] if *every == Duration::from_secs(15)),
        "{:?}",
        line.news
    );
    assert_eq!(line.wakes(), 15_000);
    line.lists();
    line.page("8", None);
    assert_eq!(line.news, [], "it is known");
    line.answers(403, "");
    assert_eq!((&line.inputs[..], &line.news[..]), (&[Input::Polled(objects())][..], &[][..]));
    // Whatever everybody may watch is a mistake of ours where we may not.
    let mut nodes = Line::begin(Source::Nodes);
    nodes.page("7", None);
    nodes.answers(403, "");
    assert_eq!(nodes.inputs, [Input::Broken(Source::Nodes), Input::Forbidden(Source::Nodes)]);
}

#[test]
fn who_fails_again_and_again_waits_longer_and_not_in_step_with_others() {
    let pauses = |chance| {
        let mut line = Line::with(Source::Nodes, chance);
        let pauses: Vec<i64> = (0..8)
            .map(|_| {
                line.is_lost();
                assert_eq!(line.inputs, []);
                line.wakes()
            })
            .collect();
        (line, pauses)
    };
    let (mut line, first) = pauses(1);
    for (pause, most) in first.iter().zip([200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000]) {
        assert!((most / 2..=most).contains(pause), "{pause} of {most}: {first:?}");
    }
    assert_ne!(first, pauses(2).1);
    // What lived for long enough was good.
    line.page("7", None);
    line.opens();
    line.now += 5_000;
    line.closes();
    assert!(line.wakes() <= 200);
    // A watch that cannot be opened leaves open what was missed.
    line.is_lost();
    assert_eq!(line.inputs, [Input::Broken(Source::Nodes)]);
    line.wakes();
    assert!(line.watches().contains("resourceVersion=7"));
    assert_eq!(line.wakes(), 10_000);
    assert_eq!(line.inputs, [Input::Broken(Source::Nodes)]);
    assert!(line.watcher.wake_at().is_some());
}

#[test]
fn garbage_is_a_break_and_a_list() {
    let mut line = Line::watching(Source::Nodes);
    line.says(
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}
garbage"#,
    );
    assert_eq!(line.inputs, [Input::Heard(Source::Nodes), Input::Broken(Source::Nodes)], "what came before it counts");
    assert!(line.trouble()[0].starts_with("a line of the watch cannot be read"));
    line.wakes();
    line.lists();
    line.answers(200, "garbage");
    assert_eq!(line.inputs, []);
    line.wakes();
    assert_eq!((line.lists(), &line.inputs[..]), ("/api/v1/nodes?limit=100", &[Input::Listing(Source::Nodes)][..]));
}

#[test]
fn an_error_in_a_watch_is_a_break_and_a_list() {
    let mut line = Line::watching(Source::Nodes);
    line.says(r#"{"type":"ERROR","object":{"code":500,"message":"etcd is away"}}"#);
    assert_eq!((&line.inputs[..], line.trouble()), (&[Input::Broken(Source::Nodes)][..], vec!["etcd is away (500)"]));
    line.wakes();
    line.lists();
}

#[test]
fn lines_come_in_pieces_and_end_some_day() {
    let mut line = Line::watching(Source::Nodes);
    let bookmark = format!("{}\n", r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#);
    for byte in bookmark.bytes() {
        assert_eq!(line.inputs, []);
        let moved = line.watcher.on_bytes(&[byte], Mono(line.now));
        line.moved(moved);
    }
    assert_eq!(line.inputs, [Input::Heard(Source::Nodes)]);
    let most = vec![b'x'; LINE_MAX];
    let moved = line.watcher.on_bytes(&most, Mono(line.now));
    assert_eq!(moved.inputs, []);
    let moved = line.watcher.on_bytes(b"x", Mono(line.now));
    line.moved(moved);
    assert_eq!(line.inputs, [Input::Broken(Source::Nodes)]);
    assert_eq!(line.trouble(), [format!("a line of the watch is longer than {LINE_MAX} bytes")]);
}

#[test]
fn more_than_we_take_is_left_alone_for_a_while() {
    let pages = |source: Source, most: usize| {
        let mut line = Line::begin(source);
        (0..most).for_each(|_| line.page("7", Some("more")));
        line.lists();
        line.page("7", Some("more"));
        assert!(matches!(&line.news[..], [News::TooMuch { .. }]), "{:?}", line.news);
        assert_eq!(line.asked, None);
        line
    };
    let remote = pages(Source::RemoteNodes(blue()), 4_000);
    let too_much = Input::TooMuch { cluster: blue(), why: "its list has more than 4000 pages".into() };
    assert_eq!((&remote.inputs[..], remote.watcher.wake_at()), (&[too_much][..], None), "whoever hears of it ends it");
    let mut own = pages(Source::Nodes, 40_000);
    assert_eq!(own.inputs, []);
    assert_eq!(own.wakes(), 60_000);
    own.lists();
}

/// Two lists, which are too much only together.
#[test]
fn each_list_is_counted_anew() {
    let mut line = Line::begin(Source::RemoteNodes(blue()));
    for _ in 0..2 {
        (1..4_000).for_each(|_| line.page("7", Some("more")));
        line.page("7", None);
        assert!(line.watches().contains("resourceVersion=7"));
        line.opens();
        line.says(r#"{"type":"ERROR","object":{"code":410}}"#);
        line.wakes();
        line.lists();
    }
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_tried_again() {
    let mut line = Line::begin(Source::RemoteNodes(blue()));
    let moved = line.watcher.on_no_access(&blue(), "it is no kubeconfig", Mono(0));
    line.moved(moved);
    assert_eq!(line.inputs, [Input::NoAccess { cluster: blue(), why: "it is no kubeconfig".into() }]);
    assert_eq!(line.news, [News::NoAccess { why: "it is no kubeconfig".into() }]);
    assert_eq!(line.wakes(), 300_000);
    line.lists();
}

/// Before anything that is dated by it. What is served by others may have another clock.
#[test]
fn the_head_of_an_answer_tells_the_time() {
    let dated: HeaderMap = [(header::DATE, HeaderValue::from_static("Thu, 19 Nov 2026 05:00:00 GMT"))].into_iter().collect();
    for (source, cluster, tells) in
        [(Source::Nodes, None, true), (Source::RemoteNodes(blue()), Some(blue()), true), (objects(), None, false)]
    {
        let mut line = Line::begin(source);
        for sent_at in [0, 500] {
            line.now += 500;
            let moved = line.watcher.on_head(StatusCode::OK, &dated, Mono(line.now));
            let told = matches!(&moved.inputs[..], [Input::Dated { cluster: own, sent_at: at, .. }] if *own == cluster && *at == Mono(sent_at));
            assert!(told == tells && (tells || moved.inputs.is_empty()), "{:?}", moved.inputs);
            if sent_at == 0 {
                let moved = line.watcher.on_body(br#"{"metadata":{"resourceVersion":"7"},"items":[]}"#, Mono(line.now));
                line.moved(moved);
            }
        }
        assert!(line.watcher.is_following());
    }
}

/// A loop that is busy, or a connection that is slow, takes nothing from the time that the server has.
#[test]
fn the_server_has_its_time_from_when_it_is_asked() {
    let mut line = Line::begin(Source::Nodes);
    line.now += 9_000;
    line.watcher.on_sent(Mono(line.now));
    assert_eq!(line.wakes(), 10_000);
}

/// What belongs to a question that was given up changes nothing.
#[test]
fn late_answers_are_not_heard() {
    let mut line = Line::begin(Source::Nodes);
    line.is_lost();
    let due = line.watcher.wake_at();
    line.answers(200, r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#);
    assert_eq!((&line.inputs[..], line.asked.as_deref()), (&[][..], None));
    line.says("garbage");
    line.closes();
    line.is_lost();
    assert_eq!((&line.inputs[..], &line.news[..], line.asked.as_deref()), (&[][..], &[][..], None));
    assert_eq!(line.watcher.wake_at(), due);
    line.wakes();
    line.lists();
}
