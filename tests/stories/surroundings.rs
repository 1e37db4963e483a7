//! Surroundings that are not as one would wish: proxies, idle callers, credentials that die.

use std::net::Ipv6Addr;
use std::time::Duration;

use http::StatusCode;
use resus_harness::{Action, Cluster, Proxy, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::outside::{address, get};
use crate::stage::{SOON, stage};

/// Whoever asks and never reads the answers must not keep the kubelet out: it would restart us.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_never_read_do_not_keep_probes_out() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    let flags = ["--health-probe-bind-address=127.0.0.1:0"];
    let controller = stage.controller_with("controller", stage.cluster.admin_kubeconfig(), &flags);
    let probes = address(&controller, "serving health probes").await;
    let mut callers = JoinSet::new();
    for _ in 0..70 {
        let mut caller = TcpStream::connect(&probes).await.expect("somebody listens");
        callers.spawn(async move {
            // Until no more fits on the way back; or until it was given up.
            while caller.write_all(b"GET /metrics HTTP/1.1\r\nHost: resus\r\n\r\n").await.is_ok() {}
        });
    }
    let answer = tokio::time::timeout(SOON, get(&probes, "/healthz")).await.expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// As on clusters that have no IPv4 at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_answered_on_both_families() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_err() {
        return; // This host has no IPv6.
    }
    let flags = ["--health-probe-bind-address=:0"];
    let controller = stage.controller_with("controller", stage.cluster.admin_kubeconfig(), &flags);
    let probes = address(&controller, "serving health probes").await;
    let port = probes.rsplit_once(':').expect("an address has a port").1;
    for host in ["127.0.0.1", "[::1]"] {
        let answer = get(&format!("{host}:{port}"), "/healthz").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{host}: {answer}");
    }
}

/// OLM sets it in every pod.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_of_the_environment_is_not_for_a_server_on_this_host() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    let environment = [("HTTPS_PROXY", "http://127.0.0.1:9/"), ("NO_PROXY", "a,,b")];
    let controller = stage.controller_in("controller", stage.cluster.admin_kubeconfig(), &[], &environment);
    controller.wait_for_log("leading", SOON).await.expect("it reaches the server");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_proxy_of_our_kubeconfig_is_used() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
    let url = format!("http://us%20er:secret@{}", listener.local_addr().expect("it has an address"));
    let tunnels = tokio::spawn(tunnels(listener));
    let kubeconfig = stage.cluster.folder().join("proxied.kubeconfig");
    let text = std::fs::read_to_string(stage.cluster.admin_kubeconfig()).expect("there is one");
    let mut config: kube::config::Kubeconfig = kube::config::Kubeconfig::from_yaml(&text).expect("it is one");
    config.clusters[0].cluster.as_mut().expect("it has a cluster").proxy_url = Some(url);
    std::fs::write(&kubeconfig, serde_json::to_string(&config).expect("it can be written")).expect("it is written");
    let controller = stage.controller("controller", &kubeconfig);
    controller.wait_for_log("leading", SOON).await.expect("it reaches the server");
    controller.kill();
    assert!(!tunnels.is_finished());
    assert!(!controller.log().contains("secret"));
}

/// Opens what it is asked for by those whom it knows.
async fn tunnels(listener: TcpListener) {
    loop {
        let (mut from, _) = listener.accept().await.expect("it is asked");
        tokio::spawn(async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(from.read_u8().await.expect("a whole head"));
            }
            let head = String::from_utf8(head).expect("a head is text");
            // "us er:secret"
            assert!(head.to_lowercase().contains("proxy-authorization: basic dxmgzxi6c2vjcmv0"), "{head}");
            let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).expect("a tunnel is asked for");
            let mut to = TcpStream::connect(target).await.expect("the server is there");
            from.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.expect("it listens");
            let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
        });
    }
}

/// As when a certificate was renewed in the file that we read at the start. Refused for a minute, it is read again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_died_are_read_anew() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    let proxy = Proxy::in_front_of(&stage.cluster).await.expect("there is a free port");
    let kubeconfig = stage.account_through(&proxy).await;
    let controller = stage.controller("controller", &kubeconfig);
    controller.wait_for_log("leading", SOON).await.expect("it leads");
    let refusal = Action::refuse(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized");
    let _refused = proxy.rule(|_| true, refusal).always();
    proxy.cut_all().await;
    controller.wait_for_log("no longer leading", SOON).await.expect("its lease is not renewed");
    std::fs::copy(stage.cluster.admin_kubeconfig(), &kubeconfig).expect("the file can be written");
    until(Duration::from_secs(90), "it leads again", || async {
        let log = controller.log();
        (log.matches(" leading").count() >= 2 && log.contains("were read anew")).then_some(())
    })
    .await;
}
