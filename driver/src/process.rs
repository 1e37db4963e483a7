//! What does this process take, as Linux counts it?
//!
//! Under the names that every program's metrics have. Where there is no /proc there are no such metrics.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Read anew for each scrape.
#[derive(Debug)]
pub struct Process;

/// In /proc times are in hundredths of a second, whatever the kernel itself counts in.
const TICKS_PER_SECOND: f64 = 100.0;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (stat, boot) = (read("/proc/self/stat"), read("/proc/stat"));
        let fds = std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64 - 1.0); // Without the one that counts.
        let gauges = [
            ("process_resident_memory_bytes", "Memory that is in RAM", resident_bytes(&read("/proc/self/status"))),
            ("process_open_fds", "Open files and sockets", fds),
            ("process_max_fds", "How many of them there may be", max_fds(&read("/proc/self/limits"))),
            ("process_start_time_seconds", "When it started, in seconds since 1970", started_at(&stat, &boot)),
        ];
        for (name, help, value) in gauges {
            let Some(gauge) = value.map(ConstGauge::new) else { continue };
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let Some(counter) = cpu_seconds(&stat).map(ConstCounter::new) else { return Ok(()) };
        counter.encode(encoder.encode_descriptor("process_cpu_seconds", "CPU time", None, counter.metric_type())?)
    }
}

fn resident_bytes(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? * 1024.0)
}

fn max_fds(limits: &str) -> Option<f64> {
    limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((field(stat, 14)? + field(stat, 15)?) / TICKS_PER_SECOND)
}

fn started_at(stat: &str, boot: &str) -> Option<f64> {
    let booted_at: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(booted_at + field(stat, 22)? / TICKS_PER_SECOND)
}

/// By its number in proc(5). The second may have spaces and brackets in it, as it is the program's name.
fn field(stat: &str, number: usize) -> Option<f64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(number - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_counts_is_read() {
        let stat = "4711 (a) b) c) S 1 4711 4711 0 -1 4194304 900 0 0 0 1234 66 0 0 20 0 3 0 8200 1 2 3";
        assert_eq!(cpu_seconds(stat), Some(13.0));
        assert_eq!(started_at(stat, "cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_082.0));
        assert_eq!(resident_bytes("Name:\tresus\nVmRSS:\t   17 kB\n"), Some(17_408.0));
        assert_eq!(max_fds("Limit  Soft  Hard\nMax open files            1024                 4096  files\n"), Some(1024.0));
        for garbage in ["", "VmRSS:", "1 (a", "Max open files unlimited"] {
            assert_eq!((cpu_seconds(garbage), resident_bytes(garbage), max_fds(garbage)), (None, None, None), "{garbage}");
        }
    }
}
