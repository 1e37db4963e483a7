//! Node auto-repair for Kubernetes.

use clap::{Parser, Subcommand};

mod serve;

mod cmd {
    pub mod apiserver;
    pub mod check;
    pub mod controller;
    pub mod demo;
    pub mod manifests;
    pub mod upgrades;
}

/// Finds out which nodes are broken, by rules that you write, and has them repaired.
#[derive(Parser)]
#[command(name = "resus", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(cmd::demo::Demo),
    Controller(cmd::controller::Controller),
    Apiserver(cmd::apiserver::Apiserver),
    Check(cmd::check::Check),
    Manifests(cmd::manifests::Manifests),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Demo(demo) => demo.run(),
        Command::Controller(controller) => controller.run(),
        Command::Apiserver(apiserver) => apiserver.run(),
        Command::Check(check) => check.run(),
        Command::Manifests(manifests) => manifests.run(),
    }
}
