//! Which labels does an object have, and does a selector select it?

use std::sync::Arc;

/// Labels, packed, and without the keys where another node has the same: every plan asks every node for some of them, and
/// what takes long there is to fetch what is scattered over the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels {
    /// In order.
    keys: Arc<Texts>,
    values: Texts,
}

impl Labels {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.keys.position(key).map(|at| self.values.get(at))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.keys.iter().zip(self.values.iter())
    }

    /// If they are the same, they need not be kept twice.
    pub fn share_keys(&mut self, other: &Labels) {
        if self.keys == other.keys {
            self.keys = other.keys.clone();
        }
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Labels {
        let mut labels: Vec<(K, V)> = labels.into_iter().collect();
        labels.sort_by(|(one, _), (other, _)| one.as_ref().cmp(other.as_ref()));
        labels.dedup_by(|(one, _), (other, _)| one.as_ref() == other.as_ref());
        let keys = Texts::of(labels.iter().map(|(key, _)| key.as_ref()));
        Labels { keys: Arc::new(keys), values: Texts::of(labels.iter().map(|(_, value)| value.as_ref())) }
    }
}

/// Several texts in two allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Texts {
    all: Box<str>,
    ends: Box<[u32]>,
}

impl Texts {
    fn of<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Texts {
        let end = |end: &mut usize, text: &str| {
            *end += text.len();
            Some(u32::try_from(*end).expect("no object of the API is nearly as large"))
        };
        Texts { ends: texts.clone().scan(0, |sum, text| end(sum, text)).collect(), all: texts.collect() }
    }

    fn get(&self, at: usize) -> &str {
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.all[begin as usize..self.ends[at] as usize]
    }

    /// Most differ by their length already.
    fn position(&self, text: &str) -> Option<usize> {
        let mut end = 0;
        self.ends.iter().position(|next| {
            let begin = std::mem::replace(&mut end, *next as usize);
            end - begin == text.len() && self.all.as_bytes()[begin..end] == *text.as_bytes()
        })
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).map(|at| self.get(at))
    }
}

/// A label selector; without any requirement it selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector(pub Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Requirement {
    In(Box<str>, Vec<Box<str>>),
    NotIn(Box<str>, Vec<Box<str>>),
    Exists(Box<str>),
    DoesNotExist(Box<str>),
}

impl Selector {
    pub fn selects(&self, labels: &Labels) -> bool {
        let holds = |values: &[Box<str>], value: &str| values.iter().any(|own| &**own == value);
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => labels.get(key).is_some_and(|value| holds(values, value)),
            // As in Kubernetes, a label that is not there is in no list.
            Requirement::NotIn(key, values) => !labels.get(key).is_some_and(|value| holds(values, value)),
            Requirement::Exists(key) => labels.get(key).is_some(),
            Requirement::DoesNotExist(key) => labels.get(key).is_none(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_select_as_in_kubernetes() {
        let labels: Labels = [("role", "worker"), ("zone", "a"), ("empty", "")].into_iter().collect();
        let list = |values: &[&str]| values.iter().map(|v| Box::from(*v)).collect::<Vec<Box<str>>>();
        for (requirement, selected) in [
            (Requirement::In("role".into(), list(&["worker", "infra"])), true),
            (Requirement::In("role".into(), list(&["infra"])), false),
            (Requirement::In("none".into(), list(&["x"])), false),
            (Requirement::NotIn("role".into(), list(&["infra"])), true),
            (Requirement::NotIn("role".into(), list(&["worker"])), false),
            (Requirement::NotIn("none".into(), list(&["x"])), true),
            (Requirement::Exists("empty".into()), true),
            (Requirement::Exists("emp".into()), false),
            (Requirement::DoesNotExist("zone".into()), false),
            (Requirement::DoesNotExist("rack".into()), true),
        ] {
            assert_eq!(Selector(vec![requirement.clone()]).selects(&labels), selected, "{requirement:?}");
        }
        assert!(Selector::default().selects(&Labels::default()), "an empty selector selects all");
    }
}
