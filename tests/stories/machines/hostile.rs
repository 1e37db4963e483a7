//! Servers of workload clusters that do what no API server does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use resus_harness::{Cluster, Process, until};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::check::check;
use super::dialect::Dialect;
use super::site::{kubeconfig, site};

/// Resident memory of the controller, at most, in KiB.
const MEMORY_MAX: usize = 64 << 10;
/// A server that sends as fast as it can reaches every limit within this.
const TOLD_WITHIN: Duration = Duration::from_secs(120);
/// Of the labels of one Node; about as much as is kept of one.
const LABELS: usize = 300;

#[derive(Clone, Copy, Debug)]
enum Manner {
    /// What it answers is no JSON.
    Garbage,
    /// There is always another page.
    Pages,
    /// A page has no end.
    Body,
    /// Its list is short, and its watch shows a new Node with each line.
    Watch,
    /// A line of its watch has no end.
    Line,
    /// It sends us elsewhere.
    Redirects,
    Hangs,
}

struct Liar {
    manner: Manner,
    elsewhere: String,
    nodes: AtomicUsize,
}

impl Liar {
    /// Returns where it is.
    async fn serve(manner: Manner, elsewhere: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        let liar = Arc::new(Liar { manner, elsewhere: elsewhere.to_owned(), nodes: AtomicUsize::new(0) });
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let liar = liar.clone();
                // Who is asked breaks off when it is hung up on.
                tokio::spawn(async move { liar.talk(stream).await });
            }
        });
        format!("http://{address}")
    }

    async fn talk(&self, stream: TcpStream) -> Option<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                (stream.read_line(&mut head).await.ok()? > 0).then_some(())?;
            }
            let path = head.split(' ').nth(1)?.to_owned();
            self.answer(&path, &mut stream).await?;
        }
    }

    async fn answer(&self, path: &str, to: &mut BufReader<TcpStream>) -> Option<()> {
        let is_watch = path.contains("watch=true");
        match self.manner {
            Manner::Hangs => std::future::pending().await,
            Manner::Redirects => {
                let head = format!("HTTP/1.1 302 Found\r\nlocation: {}{path}\r\ncontent-length: 0\r\n\r\n", self.elsewhere);
                to.write_all(head.as_bytes()).await.ok()
            }
            Manner::Garbage => whole(to, "{\"kind\": \"NodeList\", \"items\": [{]}\u{0}").await,
            _ if path.ends_with("/kube-system") => {
                whole(to, &json!({"metadata": {"name": "kube-system", "uid": "1-2-3"}}).to_string()).await
            }
            Manner::Pages | Manner::Watch | Manner::Body | Manner::Line if is_watch => {
                to.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.ok()?;
                loop {
                    let line = match self.manner {
                        Manner::Line => "x".repeat(1 << 16),
                        _ => format!("{}\n", json!({"type": "ADDED", "object": self.node()})),
                    };
                    chunk(to, &line).await?;
                }
            }
            Manner::Body => {
                to.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.ok()?;
                chunk(to, "{\"metadata\": {}, \"items\": [").await?;
                loop {
                    chunk(to, &format!("{},", self.node())).await?;
                }
            }
            Manner::Pages => {
                let items: Vec<Value> = (0..100).map(|_| self.node()).collect();
                whole(to, &json!({"metadata": {"resourceVersion": "1", "continue": "more"}, "items": items}).to_string()).await
            }
            Manner::Watch | Manner::Line => {
                whole(to, &json!({"metadata": {"resourceVersion": "1"}, "items": []}).to_string()).await
            }
        }
    }

    fn node(&self) -> Value {
        let n = self.nodes.fetch_add(1, Ordering::Relaxed);
        let labels: serde_json::Map<String, Value> =
            (0..LABELS).map(|at| (format!("l{at}-{n}"), json!("x".repeat(63)))).collect();
        json!({"metadata": {"name": format!("n{n}"), "uid": format!("u{n}"), "resourceVersion": "1", "labels": labels}})
    }
}

async fn whole(to: &mut BufReader<TcpStream>, body: &str) -> Option<()> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    to.write_all(head.as_bytes()).await.ok()?;
    to.write_all(body.as_bytes()).await.ok()
}

async fn chunk(to: &mut BufReader<TcpStream>, text: &str) -> Option<()> {
    to.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await.ok()
}

/// The most that it ever was, in KiB.
fn memory(process: &Process) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux counts it");
    peak.trim().trim_end_matches(" kB").parse().expect("it is a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_lies_takes_no_memory_and_costs_the_others_nothing() {
    let Some(site) = site(Dialect::V1beta2, Cluster::builder()).await else { return };
    site.machines(7).await;
    site.check(&check("good")).await;
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
    let address = elsewhere.local_addr().expect("it is bound");
    let follower = tokio::spawn(async move { elsewhere.accept().await.map(drop) });
    let controller = site.controller_with(&["--mhc=all", "--allow-insecure-workload-clusters"]).await;
    let unreachable = "False ClusterUnreachable";
    let manners = [
        (Manner::Garbage, "False Stale"),
        (Manner::Pages, unreachable),
        (Manner::Body, "False Stale"),
        (Manner::Watch, unreachable),
        // Again and again, after a list that is as it should be.
        (Manner::Line, ""),
        (Manner::Redirects, "False Stale"),
        (Manner::Hangs, "False Stale"),
    ];
    let mut asked = Vec::new();
    for (n, (manner, told)) in manners.into_iter().enumerate() {
        let name = format!("{manner:?}").to_lowercase();
        let server = Liar::serve(manner, &format!("http://{address}")).await;
        let mut bad: Value = serde_json::from_str(&kubeconfig(site.stage.cluster.admin_kubeconfig())).expect("it is JSON");
        bad["clusters"][0]["cluster"] = json!({"server": server});
        site.cluster_with(&name, &bad.to_string()).await;
        site.machine(&format!("z-{name}"), &name, Some("nowhere")).await;
        site.check(&check(&name).cluster(&name)).await;
        until(TOLD_WITHIN, &format!("of {name} it is told"), || async {
            let is_told =
                |said: &String| said == told || told.is_empty() && controller.log().contains("a line of the watch is longer");
            site.says("MachineHealthCheck", &name, "RemediationAllowed").await.iter().any(is_told).then_some(())
        })
        .await;
        site.breaks(&format!("n{}", n + 1)).await;
        asked.push(format!("m{}", n + 1));
        site.until_asked(&asked.iter().map(String::as_str).collect::<Vec<_>>()).await;
        println!("{name}: {} KiB at most", memory(&controller));
    }
    assert!(!follower.is_finished(), "redirects are not followed");
    let most = memory(&controller);
    assert!(most < MEMORY_MAX, "{most} KiB");
    assert!(controller.is_running() && !controller.log().contains("a mistake in this program"));
}
