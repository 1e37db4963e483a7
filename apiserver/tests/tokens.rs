//! Tokens of service accounts are not to be guessed from anything that the server shows.

use http::{Method, Request};
use jiff::Timestamp;
use resus_apiserver::{Reply, Server};
use serde_json::{Value, json};

fn token(server: &mut Server) -> String {
    let body =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {"name": "default"}, "spec": {}});
    let request = Request::builder()
        .method(Method::POST)
        .uri("/api/v1/namespaces/default/serviceaccounts/default/token")
        .header("authorization", "Bearer admin")
        .body(body.to_string().into_bytes())
        .expect("the request is valid");
    let Reply::Answer(answer) = server.handle(Timestamp::UNIX_EPOCH, request) else { panic!("it is no watch") };
    let body: Value = serde_json::from_slice(answer.body()).expect("it is JSON");
    body["status"]["token"].as_str().unwrap_or_else(|| panic!("no token: {body}")).to_owned()
}

#[test]
fn tokens_of_a_server_that_others_reach_do_not_follow_from_its_seed() {
    let mut server = Server::new(1, Timestamp::UNIX_EPOCH);
    while server.tend(Timestamp::UNIX_EPOCH) {}
    server.require_token("admin", || "nobody guesses this".to_owned());
    let token = token(&mut server);
    assert_eq!(token.rsplit('.').next(), Some("nobody guesses this"), "{token}");
}

#[test]
fn the_same_seed_draws_the_same_tokens_where_only_tests_ask() {
    let [one, same, other] = [1, 1, 2].map(|seed| {
        let mut server = Server::new(seed, Timestamp::UNIX_EPOCH);
        while server.tend(Timestamp::UNIX_EPOCH) {}
        token(&mut server)
    });
    assert_eq!(one, same);
    assert_ne!(one, other);
}
