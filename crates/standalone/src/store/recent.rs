//! The records that were last written or read, as they are on the disk: most requests are about a
//! record that was just written, and opening a sealed row costs more than all the rest of an answer.
//!
//! The directory's lock makes this process the only one that writes, so the copy cannot grow old
//! unless a read and a write of one record cross: the read finds the former version, the write puts
//! the new one here, and then the read would put the former one over it. So a read leaves a
//! placeholder before it looks at the disk, and fills it only if it is still there; a write replaces
//! it, a removal takes it away.

use std::sync::Arc;
use std::time::Duration;

use engine::ports::{StoreError, Stored, Version};
use engine::record::{Key, Record};
use quick_cache::sync::{Cache, GuardResult};
use quick_cache::{OptionsBuilder, Weighter};

/// How many bytes of records are kept, as on the disk; in memory they take a few times as much.
pub(super) const CAPACITY: u64 = 128 * 1024;
/// The part of the capacity from which a record is too large to be kept: it would drive out many others.
const LARGEST: u64 = 16;
const SHARDS: usize = 4;

/// A record, and how many bytes it takes on the disk.
#[derive(Debug, Clone)]
pub(super) struct Sized {
    pub(super) stored: Stored,
    pub(super) bytes: u64,
}

#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<Key, Sized> for ByBytes {
    fn weight(&self, _: &Key, sized: &Sized) -> u64 {
        sized.bytes
    }
}

/// A bounded copy of part of the store.
#[derive(Debug)]
pub(super) struct Recent {
    records: Cache<Key, Sized, ByBytes>,
    largest: u64,
}

impl Recent {
    /// Makes a copy that holds `capacity` bytes; with 0, nothing.
    pub(super) fn new(capacity: u64) -> Self {
        let mut options = OptionsBuilder::new();
        options.shards(SHARDS).estimated_items_capacity(128).weight_capacity(capacity);
        #[expect(clippy::unwrap_used, reason = "fails only if a capacity is not given")]
        let options = options.build().unwrap();
        let records = Cache::with_options(options, ByBytes, Default::default(), Default::default());
        Self { records, largest: capacity / LARGEST }
    }

    /// Reads a record from here, or else from the disk.
    pub(super) fn read(
        &self,
        key: &Key,
        from_disk: impl FnOnce() -> Result<Option<Sized>, StoreError>,
    ) -> Result<Option<Stored>, StoreError> {
        match self.records.get_value_or_guard(key, Some(Duration::ZERO)) {
            GuardResult::Value(sized) => Ok(Some(sized.stored)),
            GuardResult::Guard(guard) => {
                let Some(sized) = from_disk()? else { return Ok(None) };
                if sized.bytes <= self.largest {
                    // Refused if a write came first: then that one is here.
                    let _ = guard.insert(sized.clone());
                }
                Ok(Some(sized.stored))
            }
            // Another reader is about it: not waited for.
            GuardResult::Timeout => Ok(from_disk()?.map(|sized| sized.stored)),
        }
    }

    /// The record, if it is here.
    pub(super) fn recall(&self, key: &Key) -> Option<Stored> {
        self.records.get(key).map(|sized| sized.stored)
    }

    /// Notes that a record was written: after it is durable, and before anybody is told.
    pub(super) fn written(&self, record: &Arc<Record>, version: Version, bytes: u64) {
        if bytes > self.largest {
            return self.removed(&record.key);
        }
        let stored = Stored { record: Arc::clone(record), version };
        self.records.insert(record.key.clone(), Sized { stored, bytes });
    }

    /// Notes that a record was removed, or is not worth keeping here.
    pub(super) fn removed(&self, key: &Key) {
        self.records.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use engine::testing::store_contract::sample;

    use super::*;

    fn sized(version: &str) -> Sized {
        let version = Version(version.to_owned());
        Sized { stored: Stored { record: Arc::new(sample("i")), version }, bytes: 1000 }
    }

    fn version(recent: &Recent) -> Option<String> {
        let key = sample("i").key;
        recent.read(&key, || Ok(None)).unwrap().map(|stored| stored.version.0)
    }

    #[test]
    fn a_read_that_a_write_crosses_leaves_the_newer_version() {
        let record = Arc::new(sample("i"));
        for bytes in [1000, CAPACITY] {
            let recent = Recent::new(CAPACITY);
            let read = recent.read(&record.key, || {
                recent.written(&record, Version("2".to_owned()), bytes);
                Ok(Some(sized("1")))
            });
            assert_eq!(read.unwrap().unwrap().version.0, "1", "it was so when it was read");
            assert_eq!(version(&recent), (bytes == 1000).then(|| "2".to_owned()));
        }
    }

    #[test]
    fn a_read_that_a_removal_crosses_leaves_nothing() {
        let recent = Recent::new(CAPACITY);
        let key = sample("i").key;
        let read = recent.read(&key, || {
            recent.removed(&key);
            Ok(Some(sized("1")))
        });
        assert!(read.unwrap().is_some());
        assert_eq!(version(&recent), None);
    }

    #[test]
    fn a_reader_waits_for_no_other_one() {
        let recent = Recent::new(CAPACITY);
        let key = sample("i").key;
        let outer = recent.read(&key, || {
            let inner = recent.read(&key, || Ok(Some(sized("1"))));
            assert_eq!(inner.unwrap().unwrap().version.0, "1");
            Ok(Some(sized("1")))
        });
        assert!(outer.unwrap().is_some());
        assert_eq!(version(&recent), Some("1".to_owned()));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let recent = Recent::new(CAPACITY);
        for n in 0..10_000 {
            recent.written(&Arc::new(sample(&n.to_string())), Version("1".to_owned()), 1000);
        }
        assert!(recent.records.weight() <= CAPACITY, "{}", recent.records.weight());
        recent.written(&Arc::new(sample("i")), Version("1".to_owned()), CAPACITY);
        assert_eq!(version(&recent), None);
    }

    #[test]
    fn a_fault_of_the_disk_is_not_kept() {
        let recent = Recent::new(CAPACITY);
        let key = sample("i").key;
        let failed = recent.read(&key, || Err(StoreError::Unavailable("disk".to_owned())));
        assert!(failed.is_err());
        assert!(recent.read(&key, || Ok(Some(sized("1")))).unwrap().is_some());
    }
}
