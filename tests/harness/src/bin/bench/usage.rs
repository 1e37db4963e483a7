//! What does the kernel say about a process, and about the machine?

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

pub struct Usage {
    pid: u32,
    ticks_per_second: u64,
}

/// In KiB, as the kernel counts.
#[derive(Clone, Copy)]
pub struct Memory {
    pub resident: u64,
    pub peak: u64,
}

impl Usage {
    pub async fn of(pid: u32) -> Result<Usage> {
        let mut getconf = Command::new("getconf");
        getconf.arg("CLK_TCK");
        let said = resus_harness::run(&getconf, Duration::from_secs(10)).await?.ok().context("getconf CLK_TCK")?;
        Ok(Usage { pid, ticks_per_second: said.trim().parse().context("getconf CLK_TCK prints a number")? })
    }

    pub fn memory(&self) -> Result<Memory> {
        let path = format!("/proc/{}/status", self.pid);
        let status = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            number.with_context(|| format!("no {name} in {path}"))
        };
        Ok(Memory { resident: field("VmRSS")?, peak: field("VmHWM")? })
    }

    /// In user and in kernel mode, of all threads, since the process began.
    pub fn cpu(&self) -> Result<Duration> {
        let path = format!("/proc/{}/stat", self.pid);
        let stat = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        // The second field is the program's name, which may hold blanks and brackets; utime and stime are the 14th and 15th.
        let after_name = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let ticks = after_name.split_whitespace().skip(11).take(2).map(str::parse::<u64>).collect::<Result<Vec<_>, _>>();
        let ticks = ticks.ok().filter(|both| both.len() == 2).with_context(|| format!("no CPU time in {path}"))?;
        Ok(Duration::from_millis(ticks.iter().sum::<u64>() * 1000 / self.ticks_per_second))
    }
}

/// Over 1, 5 and 15 minutes.
pub fn load_average() -> Result<String> {
    let load = std::fs::read_to_string("/proc/loadavg").context("reading /proc/loadavg")?;
    Ok(load.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
}
