//! Who is the parent of every process that a test starts?
//!
//! A child must die with the test even if the test is killed and runs no code any more. The kernel does that
//! (`PR_SET_PDEATHSIG`, set by util-linux's `setpriv`, which then becomes the program: the pid stays the same), but it
//! watches the *thread* that forked, not the process: a worker thread that a runtime retires would take its children
//! with it. So one thread forks all children, and it lives as long as the test process.

use std::ffi::OsStr;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;

use anyhow::Context;

/// Starts `command` with its output going to the two files, such that it dies with this process.
pub(crate) fn give_birth(command: &Command, stdout: File, stderr: File) -> anyhow::Result<Child> {
    let mut bound = bound_to_us(command);
    bound.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    let (answer_to, answer) = mpsc::channel();
    parent().send(Order { bound, answer_to }).expect("the parent thread never ends before the process");
    let born = answer.recv().expect("the parent thread answers every order");
    born.with_context(|| format!("cannot start {} through util-linux's setpriv", command.get_program().display()))
}

struct Order {
    bound: Command,
    answer_to: mpsc::Sender<std::io::Result<Child>>,
}

/// The same command, run by `setpriv`. (A test killed in the instant between fork and `setpriv`'s system call would
/// leave the child behind; no shell tool can close that gap.)
fn bound_to_us(command: &Command) -> Command {
    let mut bound = Command::new("setpriv");
    bound.args(["--pdeathsig", "KILL", "--"].map(OsStr::new)).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    bound
}

fn parent() -> &'static mpsc::Sender<Order> {
    static PARENT: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    PARENT.get_or_init(|| {
        let (order_to, orders) = mpsc::channel::<Order>();
        // The sender is in a static, so the loop ends only with the process; that is why nobody joins this thread.
        thread::Builder::new()
            .name("parent-of-all".to_owned())
            .spawn(move || {
                for mut order in orders {
                    // Who ordered waits for the answer, so a lost receiver cannot happen; and a lost child is killed
                    // with us anyway.
                    let _ = order.answer_to.send(order.bound.spawn());
                }
            })
            .expect("a test process may have one more thread");
        order_to
    })
}
