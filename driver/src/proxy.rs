//! Through which proxy is an API server reached?
//!
//! As programs written in Go do it: kubectl and ours, side by side, should reach the same server.

use std::net::IpAddr;

use anyhow::{Context as _, Result};
use http::Uri;
use kube::config::Kubeconfig;
use kube::{Client, Config};

use crate::connect::{self, Trust};

/// Stands in kubeconfigs that name no proxy, so that kube asks the environment for none: it does not read NO_PROXY as others do.
const UNSET: &str = "http://unset.invalid";

pub fn ask_us(kubeconfig: &mut Kubeconfig) {
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|cluster| cluster.cluster.as_mut()) {
        if cluster.proxy_url.as_ref().is_none_or(String::is_empty) {
            cluster.proxy_url = Some(UNSET.into());
        }
    }
}

pub fn client(mut config: Config, trust: Trust) -> Result<Client> {
    let is_unset = config.proxy_url.as_ref().is_none_or(|proxy| *proxy == Uri::from_static(UNSET));
    let proxy = match config.proxy_url.take() {
        Some(own) if !is_unset => Some(own),
        _ => of_environment(&config.cluster_url, |name| std::env::var(name).ok())?,
    };
    connect::client(&config, proxy.as_ref(), trust).context("cannot make a client from the configuration")
}

/// `variable` is empty or none where it is not set.
fn of_environment(server: &Uri, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Uri>> {
    let either = |name: &str| {
        let set = |name: &str| variable(name).filter(|text| !text.is_empty());
        set(name).or_else(|| set(&name.to_lowercase())).unwrap_or_default()
    };
    let is_https = server.scheme_str() == Some("https");
    let name = if is_https { "HTTPS_PROXY" } else { "HTTP_PROXY" };
    let proxy = either(name);
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']).to_lowercase();
    let port = server.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    if proxy.is_empty() || is_direct(&either("NO_PROXY"), &host, port) {
        return Ok(None);
    }
    let proxy = if proxy.contains("://") { proxy } else { format!("http://{proxy}") };
    // Without its text, which may have a password.
    let proxy: Uri = proxy.parse().ok().with_context(|| format!("{name} is no URL"))?;
    Ok(Some(proxy))
}

fn is_direct(no_proxy: &str, host: &str, port: u16) -> bool {
    let address: Option<IpAddr> = host.parse().ok();
    let is_named = |entry: &str| {
        let entry = entry.trim().to_lowercase();
        let (entry, of_port) = match entry.rsplit_once(':') {
            Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name.to_owned(), port.parse().ok()),
            _ => (entry, Some(port)),
        };
        let name = entry.trim_matches(['[', ']']);
        let fits = match (address, name.split_once('/')) {
            _ if name == "*" => true,
            _ if name.is_empty() => false,
            (Some(address), Some((network, bits))) => is_within(address, network, bits),
            (Some(address), None) => name.parse() == Ok(address),
            (None, _) => {
                let domain = name.strip_prefix('*').unwrap_or(name);
                // One with a dot in front is about what is below it.
                domain == host || host.strip_suffix(domain).is_some_and(|rest| domain.starts_with('.') || rest.ends_with('.'))
            }
        };
        fits && of_port == Some(port)
    };
    host == "localhost" || address.is_some_and(|address| address.is_loopback()) || no_proxy.split(',').any(is_named)
}

fn is_within(address: IpAddr, network: &str, bits: &str) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) if bits <= 32 => {
            (address.to_bits() ^ network.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network)) if bits <= 128 => {
            (address.to_bits() ^ network.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(server: &'static str, variables: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
        of_environment(&Uri::from_static(server), variable).unwrap().map(|proxy| proxy.to_string())
    }

    #[test]
    fn a_proxy_of_the_environment_is_used_as_go_programs_use_it() {
        let some = Some("http://proxy:3128/".to_owned());
        assert_eq!(proxy("https://api.example.com:6443", &[("HTTPS_PROXY", "http://proxy:3128")]), some);
        assert_eq!(proxy("https://api.example.com:6443", &[("https_proxy", "proxy:3128")]), some);
        assert_eq!(proxy("https://api.example.com:6443", &[("HTTP_PROXY", "proxy:3128"), ("ALL_PROXY", "proxy:3128")]), None);
        assert_eq!(proxy("https://api.example.com:6443", &[("HTTPS_PROXY", "")]), None);
        for here in ["https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443"] {
            assert_eq!(proxy(here, &[("HTTPS_PROXY", "http://127.0.0.1:9/")]), None, "{here}");
        }
    }

    #[test]
    fn no_proxy_names_hosts_domains_networks_and_ports() {
        let direct = |server, list| proxy(server, &[("HTTPS_PROXY", "proxy:3128"), ("NO_PROXY", list)]).is_none();
        for (list, is_direct) in [
            ("", false),
            ("a,,b,", false),
            ("*", true),
            ("example.com", true),
            (" a , EXAMPLE.com ", true),
            (".example.com", true),
            ("*.example.com", true),
            ("ample.com", false),
            ("api.example.com", true),
            (".api.example.com", false),
            ("example.com:6443", true),
            ("example.com:443", false),
        ] {
            assert_eq!(direct("https://api.example.com:6443", list), is_direct, "{list}");
        }
        for (list, is_direct) in [
            ("10.96.0.1", true),
            ("10.96.0.0/12", true),
            ("10.128.0.0/12", false),
            ("0.0.0.0/0", true),
            ("10.96.0.0/33", false),
            ("10.96.0.1:443", true),
        ] {
            assert_eq!(direct("https://10.96.0.1", list), is_direct, "{list}");
        }
        for (list, is_direct) in [("fd00::1", true), ("fd00::/8", true), ("fe80::/10", false), ("[fd00::1]:443", true)] {
            assert_eq!(direct("https://[fd00::1]", list), is_direct, "{list}");
        }
    }
}
