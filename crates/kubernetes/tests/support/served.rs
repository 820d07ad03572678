//! How often an API server was called, as it counts itself.

use std::collections::BTreeMap;

use kube::Client;

/// How often each was called.
pub(crate) type Tally = BTreeMap<String, u64>;

/// What it has served of these kinds since it began, in the words of [`Calls`](crate::calls::Calls): a list is a `GET` and
/// an apply a `PATCH`, and watches are left out.
pub(crate) async fn served(client: &Client, kinds: &[&str]) -> Tally {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = client.request_text(request).await.unwrap();
    let mut tally = Tally::new();
    for line in metrics.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
        let label = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\"")).expect(name);
            rest.split('"').next().unwrap_or_default()
        };
        let verb = match label(",verb") {
            "WATCH" => continue,
            "LIST" => "GET",
            "APPLY" => "PATCH",
            verb => verb,
        };
        let (kind, part) = (label(",resource"), label(",subresource"));
        if kinds.contains(&kind) {
            let parted = if part.is_empty() { "" } else { "/" };
            let count: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            *tally.entry(format!("{verb} {kind}{parted}{part}")).or_default() += count as u64;
        }
    }
    tally
}
