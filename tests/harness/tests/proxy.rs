//! Does the proxy lose, hold and forge what the story says, and nothing else?

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use futures::AsyncBufReadExt;
use http::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use resus_harness::{Action, Asked, Cluster, Process, Proxy, Rule, cluster_or_skip, until};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(10);
/// Long next to a request on loopback (milliseconds): what has not come by then is not coming.
const A_WHILE: Duration = Duration::from_millis(500);

/// Set in a copy of this program that is to be killed while it asks: the name of the config map to create.
const CREATES: &str = "RESUS_HARNESS_CREATES";

#[tokio::test]
async fn a_proxy_breaks_what_its_rules_say() {
    let Some(cluster) = cluster_or_skip(Cluster::builder().audit(true)).await else { return };
    let story = Story::begin(cluster).await;

    story.what_no_rule_picks_passes().await;
    story.a_request_is_held_before_the_server().await;
    story.a_request_of_a_killed_client_is_executed_late_or_never().await;
    story.an_answer_is_held_after_the_server().await;
    story.an_answer_is_lost_after_the_server().await;
    story.an_answer_is_forged().await;
    story.the_third_request_is_cut().await;
    story.requests_hang_and_are_late().await;
    story.watches_are_streamed_and_cut().await;
    story.the_api_goes_away().await;
}

struct Story {
    cluster: Cluster,
    proxy: Proxy,
    /// Of the server itself, to see the truth.
    truth: Api<ConfigMap>,
    /// Through the proxy, without retries.
    through: Client,
}

impl Story {
    async fn begin(cluster: Cluster) -> Story {
        let proxy = Proxy::in_front_of(&cluster).await.expect("a port on loopback");
        let kubeconfig = cluster.kubeconfig_via(&proxy.url(), cluster.admin_kubeconfig()).expect("a kubeconfig of ours");
        let through = client(&kubeconfig).await;
        let truth = Api::namespaced(cluster.admin(), "default");
        Story { cluster, proxy, truth, through }
    }

    async fn what_no_rule_picks_passes(&self) {
        self.create("plain").await.expect("it passes");
        assert!(self.is_stored("plain").await);
        let last = self.proxy.requests().pop().expect("it was written down");
        assert_eq!((last.method.as_str(), last.status), ("POST", Some(201)));
        assert_eq!(last.path, "/api/v1/namespaces/default/configmaps");
    }

    async fn a_request_is_held_before_the_server(&self) {
        let hold = self.proxy.rule(creates("held"), Action::HoldBefore).times(1);
        tokio::select! {
            stored = self.create("held") => panic!("answered although held: {stored:?}"),
            () = hold.reached() => {}
        }
        assert!(!self.is_stored("held").await);
        assert_eq!((hold.hits(), hold.held()), (1, 1));
        // The select above dropped the request, so its client has gone.
        self.is_abandoned(&hold).await;
        hold.remove().await;
        assert!(!self.is_stored("held").await, "nobody waits for it any more");

        let hold = self.proxy.rule(creates("held"), Action::HoldBefore).times(1);
        let release = async {
            hold.reached().await;
            assert_eq!(hold.release().await, [Some(StatusCode::CREATED)]);
        };
        let (stored, ()) = tokio::join!(self.create("held"), release);
        stored.expect("released, it is answered");
    }

    async fn a_request_of_a_killed_client_is_executed_late_or_never(&self) {
        for released in [false, true] {
            let name = format!("orphan-{released}");
            let hold = self.proxy.rule(creates(&name), Action::HoldBefore).times(1);
            let client = self.start_client_that_creates(&name);
            hold.reached().await;
            client.kill();
            if released {
                assert_eq!(hold.release().await, [Some(StatusCode::CREATED)], "late, but executed");
            } else {
                self.is_abandoned(&hold).await;
                hold.remove().await;
            }
            assert_eq!(self.is_stored(&name).await, released);
        }
    }

    async fn an_answer_is_held_after_the_server(&self) {
        let hold = self.proxy.rule(creates("answered"), Action::HoldAfter).times(1);
        let look_and_release = async {
            hold.reached().await;
            assert!(self.is_stored("answered").await, "the server has it");
            assert_eq!(hold.held(), 1, "the client does not know");
            hold.release().await;
        };
        let (stored, ()) = tokio::join!(self.create("answered"), look_and_release);
        stored.expect("the answer is the server's");
    }

    async fn an_answer_is_lost_after_the_server(&self) {
        let lose = self.proxy.rule(creates("lost"), Action::LoseAnswer).times(1);
        let error = self.create("lost").await.expect_err("the connection was cut");
        assert!(!matches!(error, kube::Error::Api(_)), "no answer at all: {error:?}");
        assert!(self.is_stored("lost").await);
        assert_eq!(lose.hits(), 1);
    }

    async fn an_answer_is_forged(&self) {
        let busy = self.proxy.rule(creates("busy"), Action::too_many_requests(Duration::from_secs(7))).times(1);
        let error = self.create("busy").await.expect_err("the proxy refuses");
        assert!(matches!(&error, kube::Error::Api(status) if status.code == 429), "{error:?}");
        assert!(!self.is_stored("busy").await);
        self.create("busy").await.expect("it was for once");
        assert_eq!(busy.hits(), 1);

        let gone = self.proxy.rule(|asked| asked.is("GET", "/configmaps"), Action::gone()).always();
        for _ in 0..2 {
            let error = self.maps().get("busy").await.expect_err("the proxy refuses");
            assert!(matches!(&error, kube::Error::Api(status) if status.code == 410), "{error:?}");
        }
        gone.remove().await;
        self.maps().get("busy").await.expect("the rule was removed");
    }

    async fn the_third_request_is_cut(&self) {
        let cut = self.proxy.rule(|asked| asked.is("GET", "/configmaps/plain"), Action::Cut).skip(2).times(1);
        let mut went_well = Vec::new();
        for _ in 0..4 {
            went_well.push(self.maps().get("plain").await.is_ok());
        }
        assert_eq!(went_well, [true, true, false, true]);
        assert_eq!(cut.hits(), 1);
        let cut: Vec<_> = self.proxy.requests().into_iter().filter(|asked| asked.status.is_none()).collect();
        assert!(cut.iter().any(|asked| asked.path.ends_with("/plain")), "{cut:?}");
    }

    async fn requests_hang_and_are_late(&self) {
        let hang = self.proxy.rule(creates("hanging"), Action::Hang).times(1);
        timeout(A_WHILE, self.create("hanging")).await.expect_err("no answer comes");
        assert_eq!(hang.hits(), 1);
        assert!(!self.is_stored("hanging").await);

        self.proxy.rule(creates("late"), Action::Delay(A_WHILE)).times(1);
        let asked_at = tokio::time::Instant::now();
        self.create("late").await.expect("late, but answered");
        assert!(asked_at.elapsed() >= A_WHILE);
    }

    async fn watches_are_streamed_and_cut(&self) {
        let watch = http::Request::get("/api/v1/namespaces/default/configmaps?watch=true").body(Vec::new());
        let stream = self.through.request_stream(watch.expect("a good request")).await.expect("the watch starts");
        let mut lines = std::pin::pin!(stream);
        let mut line = String::new();
        self.create("watched").await.expect("it passes");
        while !line.contains("watched") {
            line.clear();
            timeout(SOON, lines.read_line(&mut line)).await.expect("events come while the watch is open").expect("a line");
        }
        self.proxy.cut_all().await;
        let rest = timeout(SOON, lines.read_line(&mut line)).await.expect("the end comes at once");
        assert!(matches!(rest, Ok(0) | Err(_)), "{rest:?} {line}");
        self.create("after-the-cut").await.expect("new connections are welcome");
    }

    async fn the_api_goes_away(&self) {
        self.proxy.refuse(true);
        self.proxy.cut_all().await;
        self.maps().get("plain").await.expect_err("the API is away");
        self.proxy.refuse(false);
        self.maps().get("plain").await.expect("the API is back");

        self.cluster.apiserver().kill();
        self.maps().get("plain").await.expect_err("the server is away, the proxy is not");
        self.cluster.apiserver().restart().await.expect("it starts again");
        self.maps().get("plain").await.expect("the proxy finds the server again");
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.through.clone(), "default")
    }

    async fn create(&self, name: &str) -> kube::Result<ConfigMap> {
        create(self.through.clone(), name).await
    }

    async fn is_stored(&self, name: &str) -> bool {
        self.truth.get_opt(name).await.expect("the server answers").is_some()
    }

    /// The end of a connection takes a moment to be noticed.
    async fn is_abandoned(&self, hold: &Rule) {
        until(SOON, "the proxy sees that the client has gone", || async { hold.is_abandoned().then_some(()) }).await;
    }

    /// A client in a process of its own, which can be killed: a copy of this program.
    fn start_client_that_creates(&self, name: &str) -> Process {
        let url = self.proxy.url();
        let kubeconfig = self.cluster.kubeconfig_via(&url, self.cluster.admin_kubeconfig()).expect("a kubeconfig of ours");
        let mut client = Command::new(std::env::current_exe().expect("this program"));
        client.args(["a_client_to_be_killed", "--exact"]);
        client.env(CREATES, name).env("KUBECONFIG", kubeconfig);
        self.cluster.start_process(name, client).expect("a copy of us starts")
    }
}

/// Does nothing unless it is the copy that [`Story::start_client_that_creates`] starts.
#[tokio::test]
async fn a_client_to_be_killed() {
    if let Ok(name) = std::env::var(CREATES) {
        let kubeconfig = std::env::var_os("KUBECONFIG").expect("given with the name");
        create(client(Path::new(&kubeconfig)).await, &name).await.expect("the proxy answers");
    }
}

/// Without retries, so that every fault is seen.
async fn client(kubeconfig: &Path) -> Client {
    let read = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig of ours");
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(read, &options).await.expect("it is good");
    config.default_retry = false;
    Client::try_from(config).expect("it is good")
}

async fn create(client: Client, name: &str) -> kube::Result<ConfigMap> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let map = ConfigMap { metadata, ..ConfigMap::default() };
    Api::namespaced(client, "default").create(&PostParams::default(), &map).await
}

fn creates(name: &str) -> impl Fn(&Asked<'_>) -> bool + Send + Sync + 'static {
    let name = format!("\"name\":\"{name}\"");
    move |asked| asked.is("POST", "/configmaps") && asked.body.contains(&name)
}
