//! What does a program under test do, and how is it paused, killed and looked into?
//!
//! A [`Process`] never outlives its value (dropping it kills and reaps it, also while a test panics), and never
//! outlives the test process (see [`crate::birth`]).

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::birth::give_birth;
use crate::until::poll;

/// A program started by a test, with its output in a log file.
pub struct Process {
    name: String,
    command: Command,
    log: PathBuf,
    life: Mutex<Life>,
}

struct Life {
    child: Child,
    /// How long the log was when this life began: what earlier lives said is not waited for.
    log_began_at: usize,
}

impl Process {
    /// Starts the program; what it prints is appended to `log`. Standard input is empty.
    pub fn start(name: &str, command: Command, log: &Path) -> anyhow::Result<Process> {
        let life = Mutex::new(begin(&command, log).with_context(|| format!("starting {name}"))?);
        Ok(Process { name: name.to_owned(), command, log: log.to_owned(), life })
    }

    /// Starts the same program again, after killing it if it still runs.
    pub fn start_again(&self) -> anyhow::Result<()> {
        self.kill();
        let next = begin(&self.command, &self.log).with_context(|| format!("starting {} again", self.name))?;
        *self.life() = next;
        Ok(())
    }

    /// The name that the test gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id; of the last life, if it has ended.
    pub fn pid(&self) -> u32 {
        self.life().child.id()
    }

    pub fn is_running(&self) -> bool {
        self.exit_status().is_none()
    }

    /// How it ended, if it has.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        exit_status(&mut self.life().child)
    }

    /// Stops it in its tracks (SIGSTOP): sockets stay open, clocks go on. Returns once it stands still.
    pub fn pause(&self) {
        let mut life = self.life();
        if signal(&mut life.child, Signal::STOP) {
            // A stop takes effect thread by thread; without waiting, a request could still slip through. An end is
            // waited for too, without reaping, so that a child that dies meanwhile does not block us.
            let stands_still = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(pid(&life.child)), stands_still).expect("our own child can be waited for");
        }
    }

    /// Lets a paused program go on (SIGCONT).
    pub fn resume(&self) {
        signal(&mut self.life().child, Signal::CONT);
    }

    /// Kills it as a power cut would (SIGKILL), paused or not, and reaps it.
    pub fn kill(&self) {
        end(&mut self.life().child);
    }

    /// Asks it to end (SIGTERM) and waits. At the limit it is killed and that is an error.
    pub async fn terminate(&self, limit: Duration) -> anyhow::Result<ExitStatus> {
        signal(&mut self.life().child, Signal::TERM);
        let ended = self.wait_for_exit(limit).await;
        self.kill();
        ended
    }

    /// Waits until it ends by itself.
    pub async fn wait_for_exit(&self, limit: Duration) -> anyhow::Result<ExitStatus> {
        poll(limit, || async { self.exit_status() }).await.with_context(|| format!("{} still ran after {limit:?}", self.name))
    }

    /// Where its output goes.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Everything that it printed so far, in all its lives.
    pub fn log(&self) -> String {
        read_lossy(&self.log)
    }

    /// Waits for a line that contains `pattern`, printed in this life, and returns it. Ends early when the process does.
    pub async fn wait_for_log(&self, pattern: &str, limit: Duration) -> anyhow::Result<String> {
        let look = || async {
            // In this order: what a process says before it ends is in the log by the time that it has ended.
            let running = self.is_running();
            match self.line_with(pattern) {
                Some(line) => Some(Ok(line)),
                None if running => None,
                None => Some(Err(())),
            }
        };
        match poll(limit, look).await {
            Some(Ok(line)) => Ok(line),
            Some(Err(())) => {
                bail!("{} ended without saying {pattern:?}; its last lines:\n{}", self.name, self.last_lines(20))
            }
            None => {
                bail!("{} did not say {pattern:?} in {limit:?}; its last lines:\n{}", self.name, self.last_lines(20))
            }
        }
    }

    /// The end of the log, for messages.
    pub fn last_lines(&self, lines_max: usize) -> String {
        last_lines(&self.log(), lines_max)
    }

    fn line_with(&self, pattern: &str) -> Option<String> {
        let began_at = self.life().log_began_at;
        let log = self.log();
        let this_life = log.get(began_at..).unwrap_or_default();
        this_life.lines().find(|line| line.contains(pattern)).map(str::to_owned)
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        // A panic elsewhere must not keep Drop from killing the child.
        self.life.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a command that ran to its end has said.
#[derive(Debug)]
pub struct Said {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// The standard output, or an error with everything that it said if it failed.
    pub fn ok(self) -> anyhow::Result<String> {
        if !self.status.success() {
            bail!("{}: {}{}", self.status, self.stderr, self.stdout);
        }
        Ok(self.stdout)
    }
}

/// Runs a command to its end. At the limit it is killed, and that is an error.
pub async fn run(command: &Command, limit: Duration) -> anyhow::Result<Said> {
    let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut child = Reaped(give_birth(command, stdout.try_clone()?, stderr.try_clone()?)?);
    let status = poll(limit, || {
        let ended = exit_status(&mut child.0);
        async move { ended }
    })
    .await
    .with_context(|| format!("{} still ran after {limit:?}", command.get_program().display()))?;
    Ok(Said { status, stdout: from_the_start(&mut stdout)?, stderr: from_the_start(&mut stderr)? })
}

/// A child that is gone when its value is, for commands that no [`Process`] holds.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

pub(crate) fn last_lines(text: &str, lines_max: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(lines_max)..].join("\n")
}

pub(crate) fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

fn begin(command: &Command, log: &Path) -> anyhow::Result<Life> {
    let log_began_at = read_lossy(log).len();
    let stdout = OpenOptions::new().create(true).append(true).open(log).with_context(|| format!("{}", log.display()))?;
    let stderr = stdout.try_clone()?;
    Ok(Life { child: give_birth(command, stdout, stderr)?, log_began_at })
}

fn exit_status(child: &mut Child) -> Option<ExitStatus> {
    child.try_wait().expect("our own child can be waited for")
}

/// Signals the child if it has not ended. The pid is safe: it cannot be given to another process before we reap it.
fn signal(child: &mut Child, signal: Signal) -> bool {
    let running = exit_status(child).is_none();
    if running {
        kill_process(pid(child), signal).expect("our own child can be signalled until it is reaped");
    }
    running
}

fn end(child: &mut Child) {
    if signal(child, Signal::KILL) {
        child.wait().expect("our own child can be waited for");
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed()).expect("a child has a pid that is not 0")
}

fn from_the_start(file: &mut File) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
