//! What a binding may hold.

use osb::BindingBody;
use osb::Permission::{self, RouteForwarding, SyslogDrain, VolumeMount};
use osb::catalog::check_binding;
use serde_json::{Value, json};

fn check(body: Value, requires: &[Permission]) -> Result<(), String> {
    check_binding(&serde_json::from_value::<BindingBody>(body).unwrap(), requires)
}

fn mount() -> Value {
    json!({"driver": "nfs", "container_dir": "/data", "mode": "rw", "device_type": "shared",
           "device": {"volume_id": "v", "mount_config": {"server": "s"}}})
}

#[test]
fn item_38_what_needs_a_permission_is_refused_without_it() {
    let cases = [
        ("syslog_drain_url", json!("syslog://x"), SyslogDrain),
        ("route_service_url", json!("https://x"), RouteForwarding),
        ("volume_mounts", json!([mount()]), VolumeMount),
    ];
    for (member, value, permission) in cases {
        let body = json!({ member: value });
        assert_eq!(check(body.clone(), &[permission]), Ok(()));
        let refusal = check(body, &[]).unwrap_err();
        assert!(refusal.starts_with(&format!("{member}: needs ")), "{refusal}");
        assert!(!refusal.contains("//x"), "{refusal}");
    }
    assert_eq!(check(json!({"credentials": {"password": "p"}}), &[]), Ok(()));
}

#[test]
fn item_39_volume_mounts_and_endpoints_are_whole() {
    let mut bad = mount();
    bad["driver"] = json!("");
    bad["container_dir"] = json!("");
    bad["device_type"] = json!("block");
    bad["device"]["volume_id"] = json!("");
    let refusal = check(json!({"volume_mounts": [mount(), bad]}), &[VolumeMount]).unwrap_err();
    for member in ["driver", "container_dir", "device_type", "device.volume_id"] {
        assert!(refusal.contains(&format!("volume_mounts[1].{member}: ")), "{refusal}");
    }
    let endpoint = |ports: Value| check(json!({"endpoints": [{"host": "h", "ports": ports}]}), &[]);
    for ports in [json!(["443"]), json!(["9000-9010"]), json!(["1", "65535", "7-7"])] {
        assert_eq!(endpoint(ports.clone()), Ok(()), "{ports}");
    }
    for port in ["", "0", "65536", "http", "10-9", "1-", "-1", "1-2-3", "+80", " 80"] {
        let refusal = endpoint(json!([port])).unwrap_err();
        assert!(refusal.starts_with("endpoints[0].ports[0]: "), "{port}: {refusal}");
    }
    assert_eq!(endpoint(json!([])).unwrap_err(), "endpoints[0].ports: must hold at least one port");
    let refusal = check(json!({"endpoints": [{"host": "", "ports": ["1"]}]}), &[]).unwrap_err();
    assert_eq!(refusal, "endpoints[0].host: must be a non-empty string");
}

#[test]
fn item_40_expiry_and_renewal_are_times_in_order() {
    let metadata = |metadata: Value| check(json!({ "metadata": metadata }), &[]);
    let time = "2026-12-31T23:59:59.0Z";
    assert_eq!(metadata(json!({})), Ok(()));
    assert_eq!(metadata(json!({"expires_at": time, "renew_before": time})), Ok(()));
    assert_eq!(metadata(json!({"expires_at": "2026-12-31T23:59:59.123Z"})), Ok(()));
    let late = metadata(json!({"expires_at": time, "renew_before": "2027-01-01T00:00:00.0Z"}));
    assert_eq!(late.unwrap_err(), "metadata.renew_before: must not be after expires_at");
    let wrong = [
        "",
        "2026-12-31",
        "2026-12-31T23:59:59Z",
        "2026-12-31T23:59:59.Z",
        "2026-12-31 23:59:59.0Z",
        "2026-12-31T23:59:59.0+01:00",
        "2026-12-31T23:59:59.0z",
        "2026-02-30T00:00:00.0Z",
        "2026-13-01T00:00:00.0Z",
        "2026-12-31T24:59:59.0Z",
        "tomorrow",
        "2026-12-31T23:59:59.0ZZ",
    ];
    for time in wrong {
        let refusal = metadata(json!({ "expires_at": time })).unwrap_err();
        assert!(
            refusal.starts_with("metadata.expires_at: must be a time like"),
            "{time}: {refusal}"
        );
    }
}
