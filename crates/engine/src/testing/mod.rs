//! Contract suites of the ports, in-memory adapters and a clock of the test's own.

pub mod clock;
pub mod clock_contract;
pub mod memory_store;
pub mod mortal;
pub mod runner_contract;
pub mod scripted_runner;
pub mod store_contract;

pub use clock::TestClock;
pub use memory_store::MemoryStore;
pub use scripted_runner::ScriptedRunner;
