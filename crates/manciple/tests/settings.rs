//! Settings that cannot be meant end the server before it begins.

mod support;

use support::{Served, Site};

const BROKER: &str = "#!/bin/sh\necho '{}'\n";

#[test]
fn faults_of_the_file_and_the_environment_are_refused_together_before_anything_is_made() {
    let mut site = Site::new(BROKER);
    site.settings = "auth: {disabled: true}\nhttp: {max_connections: 0}\n".to_owned();
    let (code, said) = Served::refused(site.command().env("JOBS_TIMEOUT", "0"));
    assert_eq!(code, Some(2), "{said}");
    for member in ["http.max_connections: ", "operations.timeout: "] {
        assert!(said.contains(member), "{said}");
    }
    assert!(!site.data().exists());
}

#[test]
fn a_level_that_would_silence_the_log_is_refused_wherever_it_is_given() {
    let site = Site::new(BROKER);
    let (code, said) = Served::refused(site.command().env("MANCIPLE_LOG_LEVEL", "warning"));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("log.level: \"warning\""), "{said}");
}
