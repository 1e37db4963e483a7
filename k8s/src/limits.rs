//! How much is taken from a server before we say that it is too much?
//!
//! What a server sends is written by others, and a workload cluster may be anybody's: one that sends without end must not take
//! the memory from all that are served. What it all becomes is limited in the core, see `resus_core::mhc::fleet`.

use resus_core::facts::Source;

/// Nodes are large: a page of this many keeps the peak of memory low and is still quick.
pub const PAGE: u32 = 100;
/// What does not arrive in time, or is too large, is asked for in halves, down to this many.
pub const PAGE_MIN: u32 = 3;
/// Objects that one page may have all the same: some API servers send all at once, whatever they are asked for; those of
/// workload clusters may not.
pub const OWN_PAGE: usize = 100_000;
pub const REMOTE_PAGE: usize = PAGE as usize;
/// Where the next page begins, and the version of a list: a hundred bytes or so. Nothing longer fits into an address anyway.
pub const TOKEN_MAX: usize = 16 << 10;
/// Of the body of a refusal; a Status has a few hundred bytes.
pub const REFUSAL_MAX: usize = 64 << 10;
/// Of the answer to a request for one object: etcd holds none of more than 1.5 MiB, and lists of kinds are smaller, too.
pub const ANSWER_MAX: usize = 4 << 20;
/// Of a Node that a workload cluster shows: eleven KB as a rule, fifty with many images. Several are asked for at once.
pub const REMOTE_ANSWER_MAX: usize = 1 << 20;
/// Of a line of a watch: one object, and no object in etcd is as large.
pub const LINE_MAX: usize = 4 << 20;

/// Of the labels, conditions, taints and annotations of one Node. Node feature discovery writes some 300 labels, and all
/// annotations of an object together have at most 256 KiB.
pub const LABELS_MAX: usize = 1000;
pub const CONDITIONS_MAX: usize = 100;
pub const TAINTS_MAX: usize = 100;
pub const ANNOTATIONS_MAX: usize = 5000;
/// Bytes of the value of an annotation that is kept; the rest is cut off. None that means anything is as long.
pub const ANNOTATION_KEPT_MAX: usize = 1024;
/// Bytes of what is kept of one Node.
pub const NODE_KEPT_MAX: usize = 32 << 10;

/// Of a list from beginning to end.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub pages: usize,
    pub objects: usize,
    pub bytes: usize,
    /// Of one page. The smallest still holds objects of the largest size that there is.
    pub page_bytes: usize,
}

/// A hundred thousand: twenty times the nodes that Kubernetes supports, and more than etcd holds of anything that is larger.
const OWN: Limits = Limits { pages: 40_000, objects: 100_000, bytes: 4 << 30, page_bytes: 16 << 20 };
/// Twice the nodes that Kubernetes supports, of fifty KB each.
const REMOTE: Limits = Limits { pages: 4_000, objects: 10_000, bytes: 512 << 20, page_bytes: 4 << 20 };
/// A cluster has at most a handful.
const REMOTE_ETCD: Limits = Limits { pages: 100, objects: 100, bytes: 16 << 20, page_bytes: 4 << 20 };

pub fn of(source: &Source) -> Limits {
    match source {
        Source::RemoteNodes(_) => REMOTE,
        Source::RemoteEtcd(_) => REMOTE_ETCD,
        Source::Nodes
        | Source::Checks
        | Source::Kinds
        | Source::Objects(_)
        | Source::NodeLeases
        | Source::OwnNamespace
        | Source::Etcd
        | Source::Budgets
        | Source::Guards
        | Source::Rivals(_)
        | Source::MachineChecks(_)
        | Source::Machines(_)
        | Source::Clusters(_)
        | Source::Access(_)
        | Source::Signals(_) => OWN,
    }
}

/// A list so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    pub pages: usize,
    pub objects: usize,
    pub bytes: usize,
}

impl Taken {
    /// Counts a page; what is beyond a limit is said.
    pub fn page(&mut self, limits: &Limits, objects: usize, bytes: usize) -> Result<(), TooMuch> {
        self.pages += 1;
        self.objects += objects;
        self.bytes += bytes;
        match self {
            _ if self.objects > limits.objects => Err(TooMuch(format!("its list has more than {} objects", limits.objects))),
            _ if self.pages > limits.pages => Err(TooMuch(format!("its list has more than {} pages", limits.pages))),
            _ if self.bytes > limits.bytes => Err(TooMuch(format!("its list has more than {} MiB", limits.bytes >> 20))),
            _ => Ok(()),
        }
    }
}

/// A server sends more than we take, and how.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TooMuch(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_ends_at_each_of_its_limits() {
        let limits = Limits { pages: 3, objects: 10, bytes: 2 << 20, page_bytes: 1 };
        let list = |pages: usize, objects: usize, bytes: usize| {
            let mut taken = Taken::default();
            (0..pages).try_for_each(|_| taken.page(&limits, objects, bytes)).map_err(|TooMuch(why)| why)
        };
        assert_eq!(list(3, 3, 100), Ok(()));
        assert_eq!(list(2, 5, 1 << 20), Ok(()));
        assert_eq!(list(4, 0, 0), Err("its list has more than 3 pages".into()));
        assert_eq!(list(2, 6, 0), Err("its list has more than 10 objects".into()));
        assert_eq!(list(2, 0, (1 << 20) + 1), Err("its list has more than 2 MiB".into()));
    }
}
