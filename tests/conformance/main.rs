//! Does our embedded API server answer as a real kube-apiserver does?
//!
//! Twice the same question: a table of cases with the answers that a real server gave (`cases/*.yaml`, see README.md),
//! and some thousand random operations whose answers are compared with each other.

mod case;
mod client;
mod compare;
mod random;
mod record;
mod run;
mod servers;

use futures::future::join;
use resus_harness::Cluster;

use crate::servers::{Embedded, real_or_skip};

#[tokio::test(flavor = "multi_thread")]
async fn a_real_server_answers_as_the_table_says() {
    let Some(cluster) = real_or_skip().await else { return };
    let api = servers::api_of(&cluster);
    match std::env::var_os("RESUS_RECORD") {
        Some(_) => record::fill_in(&api, &case::all()).await,
        None => run::all_answer_as_written(&api, case::Side::Real).await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_server_answers_as_the_table_says() {
    let embedded = Embedded::start().await;
    run::all_answer_as_written(&embedded.api, case::Side::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_operations_end_alike_on_both() {
    let Some(cluster) = real_or_skip().await else { return };
    let embedded = Embedded::start().await;
    random::end_alike(&servers::api_of(&cluster), &embedded.api).await;
}

/// Whoever writes an operation wants to see what a real server makes of it, also where ours cannot be started.
#[tokio::test(flavor = "multi_thread")]
async fn two_real_servers_end_random_operations_alike() {
    if std::env::var_os("RESUS_SELF_TEST").is_none() {
        return;
    }
    let (one, other): (Option<Cluster>, Option<Cluster>) = join(real_or_skip(), real_or_skip()).await;
    let (Some(one), Some(other)) = (one, other) else { return };
    random::end_alike(&servers::api_of(&one), &servers::api_of(&other)).await;
}
