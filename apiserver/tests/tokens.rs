//! Tokens of service accounts are not to be guessed from anything that the server shows.

use http::Request;
use jiff::Timestamp;
use resus_apiserver::{Reply, Server};
use serde_json::{Value, json};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// With `admin`, as who has this token.
fn post(server: &mut Server, path: &str, body: &Value, admin: Option<&str>) -> Value {
    let mut request = Request::post(path);
    if let Some(token) = admin {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(body.to_string().into_bytes()).expect("the request is valid");
    let Reply::Answer(answer) = server.handle(Timestamp::UNIX_EPOCH, request) else { panic!("it is no watch") };
    serde_json::from_slice(answer.body()).expect("it is JSON")
}

fn with_account(seed: u64) -> Server {
    let mut server = Server::new(seed, Timestamp::UNIX_EPOCH);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    post(&mut server, ACCOUNTS, &account, None);
    server
}

fn token(server: &mut Server, admin: Option<&str>) -> String {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = post(server, &format!("{ACCOUNTS}/robot/token"), &body, admin);
    answer["status"]["token"].as_str().unwrap_or_else(|| panic!("no token: {answer}")).to_owned()
}

#[test]
fn tokens_of_a_server_that_others_reach_do_not_follow_from_its_seed() {
    let mut server = with_account(1);
    server.require_token("admin", || "nobody guesses this".to_owned());
    let token = token(&mut server, Some("admin"));
    assert_eq!(token.rsplit('.').next(), Some("nobody guesses this"), "{token}");
}

#[test]
fn the_same_seed_draws_the_same_tokens_where_only_tests_ask() {
    let [one, same, other] = [1, 1, 2].map(|seed| token(&mut with_account(seed), None));
    assert_eq!(one, same);
    assert_ne!(one, other);
}
