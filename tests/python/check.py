"""Does the Python client work with this API server? Each check prints a line; the first that fails ends the run.

    check.py KUBECONFIG
"""

import json
import sys
import time

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError

NAMESPACE = "python"
# Far more than anything here takes, also on a slow and busy machine.
SOON_SECONDS = 60


def main():
    config.load_kube_config(sys.argv[1])
    core = client.CoreV1Api()
    core.create_namespace({"metadata": {"name": NAMESPACE}})
    for check in (
        version_and_discovery,
        create_read_replace_delete,
        lists_in_pages,
        selectors,
        patches,
        errors,
        watches,
        nodes,
        leases,
        events,
        deletion,
        custom_definitions,
        custom_objects,
        dynamic_client,
        access,
    ):
        check()
        print(f"ok: {check.__name__.replace('_', ' ')}")
    core.delete_namespace(NAMESPACE)
    until(lambda: gone(lambda: core.read_namespace(NAMESPACE)), "the namespace is gone")
    print("ok: the namespace is gone")


def version_and_discovery():
    assert client.VersionApi().get_code().major == "1"
    groups = {group.name: group.preferred_version.version for group in client.ApisApi().get_api_versions().groups}
    assert groups["apps"] == "v1" and groups["coordination.k8s.io"] == "v1", groups
    kinds = {resource.name: resource for resource in client.CoreV1Api().get_api_resources().resources}
    assert kinds["nodes"].namespaced is False and kinds["pods"].short_names == ["po"]
    assert "patch" in kinds["nodes/status"].verbs


def create_read_replace_delete():
    core = client.CoreV1Api()
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="one", labels={"tier": "front"}), data={"a": "1"})
    created = core.create_namespaced_config_map(NAMESPACE, body)
    assert created.metadata.uid and created.metadata.resource_version and created.metadata.creation_timestamp
    read = core.read_namespaced_config_map("one", NAMESPACE)
    assert read.metadata.uid == created.metadata.uid and read.data == {"a": "1"}
    read.data["b"] = "2"
    replaced = core.replace_namespaced_config_map("one", NAMESPACE, read)
    assert replaced.data == {"a": "1", "b": "2"}
    assert replaced.metadata.resource_version != created.metadata.resource_version
    refused(409, "Conflict", lambda: core.replace_namespaced_config_map("one", NAMESPACE, created))
    same = core.replace_namespaced_config_map("one", NAMESPACE, replaced)
    assert same.metadata.resource_version == replaced.metadata.resource_version, "a write that changes nothing is none"
    dry = core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "never"}}, dry_run="All")
    assert dry.metadata.name == "never"
    refused(404, "NotFound", lambda: core.read_namespaced_config_map("never", NAMESPACE))
    named = core.create_namespaced_config_map(NAMESPACE, {"metadata": {"generateName": "made-"}})
    assert named.metadata.name.startswith("made-") and len(named.metadata.name) == len("made-") + 5
    for name in ("one", named.metadata.name):
        assert core.delete_namespaced_config_map(name, NAMESPACE).status == "Success"
    secret = core.create_namespaced_secret(NAMESPACE, {"metadata": {"name": "s"}, "stringData": {"word": "xyzzy"}})
    assert secret.data == {"word": "eHl6enk="} and secret.type == "Opaque" and secret.string_data is None


def lists_in_pages():
    core = client.CoreV1Api()
    for number in range(7):
        core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": f"page-{number}", "labels": {"page": "yes"}}})
    names, token, left = [], None, []
    while True:
        page = core.list_namespaced_config_map(NAMESPACE, limit=3, _continue=token)
        names += [item.metadata.name for item in page.items]
        left.append(page.metadata.remaining_item_count)
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"page-{number}" for number in range(7)], names
    assert left == [4, 1, None], left
    everything = core.list_config_map_for_all_namespaces(label_selector="page=yes")
    assert len(everything.items) == 7 and int(everything.metadata.resource_version) > 0
    refused(400, "BadRequest", lambda: core.list_namespaced_config_map(NAMESPACE, limit=3, _continue="nonsense"))


def selectors():
    core = client.CoreV1Api()

    def names(**arguments):
        return [item.metadata.name for item in core.list_namespaced_config_map(NAMESPACE, **arguments).items]

    assert names(field_selector="metadata.name=page-3") == ["page-3"]
    assert len(names(field_selector="metadata.name!=page-3")) == 6
    assert names(label_selector="page notin (yes)") == []
    assert len(names(label_selector="page in (yes, no), !other")) == 7
    refused(400, "BadRequest", lambda: names(label_selector="page in yes"))
    refused(400, "BadRequest", lambda: names(field_selector="data.a=b"))


def patches():
    core, api = client.CoreV1Api(), client.ApiClient()
    core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "patched"}, "data": {"a": "1", "b": "2"}})
    # A list is sent as a JSON patch, an object as a strategic merge patch.
    after = core.patch_namespaced_config_map("patched", NAMESPACE, [{"op": "replace", "path": "/data/a", "value": "3"}])
    assert after.data == {"a": "3", "b": "2"}
    after = core.patch_namespaced_config_map("patched", NAMESPACE, {"data": {"b": None, "c": "4"}})
    assert after.data == {"a": "3", "c": "4"}
    for kind, body, data in (
        ("application/merge-patch+json", {"data": {"a": None}}, {"c": "4"}),
        ("application/strategic-merge-patch+json", {"data": {"$patch": "replace", "x": "1"}}, {"x": "1"}),
        ("application/json-patch+json", [{"op": "add", "path": "/data/y", "value": "2"}], {"x": "1", "y": "2"}),
    ):
        after = api.call_api(
            f"/api/v1/namespaces/{NAMESPACE}/configmaps/patched",
            "PATCH",
            body=body,
            header_params={"Content-Type": kind, "Accept": "application/json"},
            response_types_map={200: "V1ConfigMap"},
            auth_settings=["BearerToken"],
            _return_http_data_only=True,
        )
        assert after.data == data, (kind, after.data)
    error = refused(
        422,
        "Unprocessable Entity",
        lambda: core.patch_namespaced_config_map("patched", NAMESPACE, [{"op": "test", "path": "/data/x", "value": "9"}]),
    )
    assert error["reason"] == "Invalid", error
    refused(404, "NotFound", lambda: core.patch_namespaced_config_map("absent", NAMESPACE, {"data": {}}))


def errors():
    core = client.CoreV1Api()
    core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "there"}})
    status = refused(409, "Conflict", lambda: core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "there"}}))
    assert status["reason"] == "AlreadyExists" and status["message"] == 'configmaps "there" already exists', status
    assert status["details"] == {"name": "there", "kind": "configmaps"}, status
    status = refused(404, "NotFound", lambda: core.read_node("absent"))
    assert status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'nodes "absent" not found',
        "reason": "NotFound",
        "details": {"name": "absent", "kind": "nodes"},
        "code": 404,
    }, status
    bad = {"metadata": {"name": "Bad_Name"}, "spec": {"taints": [{"key": "a", "effect": "Never"}]}}
    status = refused(422, "Unprocessable Entity", lambda: core.create_node(bad))
    assert status["reason"] == "Invalid"
    assert [cause["field"] for cause in status["details"]["causes"]] == ["metadata.name", "metadata.taints[0].effect"], status
    wrong = {"metadata": {"name": "wrong"}, "data": {"a": 1}}
    assert refused(400, "Bad Request", lambda: core.create_namespaced_config_map(NAMESPACE, wrong))["reason"] == "BadRequest"
    unknown = {"metadata": {"name": "unknown"}, "colour": "red"}
    strict = refused(
        400, "Bad Request", lambda: core.create_namespaced_config_map(NAMESPACE, unknown, field_validation="Strict")
    )
    assert 'strict decoding error: unknown field "colour"' in strict["message"], strict
    nowhere = refused(404, "Not Found", lambda: core.create_namespaced_config_map("nowhere", {"metadata": {"name": "x"}}))
    assert nowhere["message"] == 'namespaces "nowhere" not found', nowhere


def watches():
    core = client.CoreV1Api()
    began_at = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "seen"}})
    core.patch_namespaced_config_map("seen", NAMESPACE, {"data": {"a": "1"}})
    core.delete_namespaced_config_map("seen", NAMESPACE)
    stream, happened = watch.Watch(), []
    for event in stream.stream(
        core.list_namespaced_config_map, NAMESPACE, resource_version=began_at, timeout_seconds=SOON_SECONDS
    ):
        happened.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            stream.stop()
    assert happened == [("ADDED", "seen"), ("MODIFIED", "seen"), ("DELETED", "seen")], happened
    # Without a version, what is there comes first; the server ends the watch in time.
    began = time.monotonic()
    there = list(watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, label_selector="page=yes", timeout_seconds=1))
    assert [event["type"] for event in there] == ["ADDED"] * 7
    assert time.monotonic() - began < SOON_SECONDS
    nodes = list(watch.Watch().stream(core.list_node, field_selector="metadata.name=absent", timeout_seconds=1))
    assert nodes == []


def nodes():
    core = client.CoreV1Api()
    core.create_node({"metadata": {"name": "python-1", "labels": {"session": "python"}}})
    assert core.patch_node("python-1", {"spec": {"unschedulable": True}}).spec.unschedulable is True
    taint = {"key": "broken", "effect": "NoExecute"}
    tainted = core.patch_node("python-1", {"spec": {"taints": [taint]}})
    assert "broken" in [taint.key for taint in tainted.spec.taints]
    assert core.patch_node("python-1", {"spec": {"taints": None}}).spec.taints is None
    now = "2026-01-02T03:04:05Z"
    for kind in ("Ready", "DiskBroken"):
        condition = {"type": kind, "status": "False", "lastHeartbeatTime": now, "lastTransitionTime": now}
        core.patch_node_status("python-1", {"status": {"conditions": [condition]}})
    node = core.read_node_status("python-1")
    assert sorted(condition.type for condition in node.status.conditions) == ["DiskBroken", "Ready"]
    assert node.status.conditions[0].last_heartbeat_time.isoformat() == "2026-01-02T03:04:05+00:00"
    assert core.patch_node("python-1", {"metadata": {"annotations": {"note": "x"}}}).metadata.annotations["note"] == "x"
    assert core.patch_node("python-1", {"metadata": {"annotations": {"note": None}}}).metadata.annotations is None
    assert [node.metadata.name for node in core.list_node(label_selector="session=python").items] == ["python-1"]
    assert core.delete_node("python-1").status == "Success"


def leases():
    coordination = client.CoordinationV1Api()
    body = client.V1Lease(
        metadata=client.V1ObjectMeta(name="leader"),
        spec=client.V1LeaseSpec(holder_identity="me", lease_duration_seconds=15, renew_time="2026-01-02T03:04:05.123456Z"),
    )
    lease = coordination.create_namespaced_lease(NAMESPACE, body)
    assert lease.spec.renew_time.microsecond == 123456
    stale = coordination.read_namespaced_lease("leader", NAMESPACE)
    lease.spec.holder_identity = "other"
    lease.spec.lease_transitions = 1
    assert coordination.replace_namespaced_lease("leader", NAMESPACE, lease).spec.holder_identity == "other"
    stale.spec.holder_identity = "late"
    refused(409, "Conflict", lambda: coordination.replace_namespaced_lease("leader", NAMESPACE, stale))


def events():
    core, modern = client.CoreV1Api(), client.EventsV1Api()
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "there", "namespace": NAMESPACE}
    old = {"metadata": {"name": "old"}, "involvedObject": reference, "reason": "Old", "message": "first", "type": "Normal"}
    core.create_namespaced_event(NAMESPACE, old)
    new = {
        "metadata": {"name": "new"},
        "regarding": reference,
        "reason": "New",
        "note": "second",
        "type": "Warning",
        "action": "Look",
        "eventTime": "2026-01-02T03:04:05.000000Z",
        "reportingController": "test.example/looker",
        "reportingInstance": "looker-1",
    }
    modern.create_namespaced_event(NAMESPACE, new)
    about = core.list_namespaced_event(NAMESPACE, field_selector="involvedObject.name=there")
    assert sorted(event.message for event in about.items) == ["first", "second"], "one store behind both APIs"
    warnings = modern.list_namespaced_event(NAMESPACE, field_selector="type=Warning")
    assert [event.note for event in warnings.items] == ["second"]


def deletion():
    core = client.CoreV1Api()
    owner = core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}
    core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "owned", "ownerReferences": [reference]}})
    wrong = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="not-this-one"))
    refused(409, "Conflict", lambda: core.delete_namespaced_config_map("owner", NAMESPACE, body=wrong))
    right = client.V1DeleteOptions(
        preconditions=client.V1Preconditions(uid=owner.metadata.uid), propagation_policy="Background"
    )
    core.delete_namespaced_config_map("owner", NAMESPACE, body=right)
    until(lambda: gone(lambda: core.read_namespaced_config_map("owned", NAMESPACE)), "what was owned is gone")

    core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "held", "finalizers": ["python.test/hold"]}})
    core.delete_namespaced_config_map("held", NAMESPACE)
    assert core.read_namespaced_config_map("held", NAMESPACE).metadata.deletion_timestamp is not None
    core.patch_namespaced_config_map("held", NAMESPACE, {"metadata": {"finalizers": None}})
    refused(404, "NotFound", lambda: core.read_namespaced_config_map("held", NAMESPACE))

    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="page=yes")
    assert core.list_namespaced_config_map(NAMESPACE, label_selector="page=yes").items == []

    container = {"name": "main", "image": "example.test/a:1"}
    core.create_namespaced_pod(NAMESPACE, {"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [container]}})
    going = core.delete_namespaced_pod("p", NAMESPACE)
    assert going.metadata.deletion_grace_period_seconds == 30
    core.delete_namespaced_pod("p", NAMESPACE, grace_period_seconds=0)
    refused(404, "NotFound", lambda: core.read_namespaced_pod("p", NAMESPACE))


GROUP, VERSION, PLURAL = "python.test", "v1", "wheels"


def custom_definitions():
    definitions = client.ApiextensionsV1Api()
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["spokes"],
                "properties": {"spokes": {"type": "integer", "minimum": 3}, "colour": {"type": "string", "default": "black"}},
            },
            "status": {"type": "object", "properties": {"turns": {"type": "integer"}}},
        },
    }
    definitions.create_custom_resource_definition(
        {
            "metadata": {"name": f"{PLURAL}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "names": {"kind": "Wheel", "plural": PLURAL},
                "scope": "Namespaced",
                "versions": [
                    {
                        "name": VERSION,
                        "served": True,
                        "storage": True,
                        "subresources": {"status": {}},
                        "schema": {"openAPIV3Schema": schema},
                    }
                ],
            },
        }
    )

    def established():
        conditions = definitions.read_custom_resource_definition(f"{PLURAL}.{GROUP}").status.conditions or []
        return any(condition.type == "Established" and condition.status == "True" for condition in conditions)

    until(established, "the definition is established")
    wheels = client.CustomObjectsApi()
    until(lambda: not gone(lambda: wheels.list_cluster_custom_object(GROUP, VERSION, PLURAL)), "the kind is served")


def custom_objects():
    wheels = client.CustomObjectsApi()
    where = (GROUP, VERSION, NAMESPACE, PLURAL)
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Wheel", "metadata": {"name": "front"}, "spec": {"spokes": 32, "odd": 1}}
    made = wheels.create_namespaced_custom_object(*where, body)
    assert made["spec"] == {"spokes": 32, "colour": "black"}, "defaulted and pruned"
    assert made["metadata"]["generation"] == 1
    body["metadata"]["name"], body["spec"]["spokes"] = "bad", 2
    status = refused(422, "Unprocessable Entity", lambda: wheels.create_namespaced_custom_object(*where, body))
    assert status["details"]["causes"][0]["field"] == "spec.spokes", status
    changed = wheels.patch_namespaced_custom_object(*where, "front", {"spec": {"colour": "red"}})
    assert changed["spec"] == {"spokes": 32, "colour": "red"} and changed["metadata"]["generation"] == 2
    seen = wheels.patch_namespaced_custom_object_status(*where, "front", {"status": {"turns": 1}, "spec": {"colour": "blue"}})
    assert seen["status"] == {"turns": 1} and seen["spec"]["colour"] == "red" and seen["metadata"]["generation"] == 2
    seen["status"]["turns"] = 2
    seen = wheels.replace_namespaced_custom_object_status(*where, "front", seen)
    assert wheels.get_namespaced_custom_object_status(*where, "front")["status"] == {"turns": 2}
    seen["spec"]["spokes"], seen["status"] = 36, {"turns": 9}
    replaced = wheels.replace_namespaced_custom_object(*where, "front", seen)
    assert replaced["spec"]["spokes"] == 36 and replaced["status"] == {"turns": 2}
    listed = wheels.list_namespaced_custom_object(*where, limit=1)
    assert listed["kind"] == "WheelList" and [item["metadata"]["name"] for item in listed["items"]] == ["front"]
    happened = list(watch.Watch().stream(wheels.list_namespaced_custom_object, *where, timeout_seconds=1))
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in happened] == [("ADDED", "front")]
    gone_now = wheels.delete_namespaced_custom_object(*where, "front")
    assert gone_now["status"] == "Success" and gone_now["details"]["kind"] == PLURAL, gone_now
    refused(404, "NotFound", lambda: wheels.get_namespaced_custom_object(*where, "front"))


def dynamic_client():
    api = dynamic.DynamicClient(client.ApiClient())
    maps = api.resources.get(api_version="v1", kind="ConfigMap")
    assert maps.namespaced and maps.name == "configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied", "namespace": NAMESPACE}, "data": {"a": "1"}}
    applied = maps.server_side_apply(body=body, name="applied", namespace=NAMESPACE, field_manager="one")
    assert applied.data.a == "1"
    assert applied.metadata.managedFields[0].manager == "one" and applied.metadata.managedFields[0].operation == "Apply"
    body["data"] = {"a": "2"}
    try:
        maps.server_side_apply(body=body, name="applied", namespace=NAMESPACE, field_manager="two")
        raise AssertionError("two managers of one field are a conflict")
    except ConflictError as error:
        status = json.loads(error.body)
        assert status["reason"] == "Conflict" and status["details"]["causes"][0]["reason"] == "FieldManagerConflict", status
        assert status["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.a', status
    forced = maps.server_side_apply(
        body=body, name="applied", namespace=NAMESPACE, field_manager="two", force_conflicts=True
    )
    assert forced.data.a == "2"
    wheels = api.resources.get(api_version=f"{GROUP}/{VERSION}", kind="Wheel")
    wheel = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Wheel", "metadata": {"name": "rear"}, "spec": {"spokes": 28}}
    wheels.server_side_apply(body=wheel, name="rear", namespace=NAMESPACE, field_manager="one")
    patched = wheels.patch(
        body={"spec": {"spokes": 30}}, name="rear", namespace=NAMESPACE, content_type="application/merge-patch+json"
    )
    assert patched.spec.spokes == 30
    status = wheels.status.patch(
        body={"status": {"turns": 5}}, name="rear", namespace=NAMESPACE, content_type="application/merge-patch+json"
    )
    assert status.status.turns == 5
    assert [item.metadata.name for item in wheels.get(namespace=NAMESPACE).items] == ["rear"]
    wheels.delete(name="rear", namespace=NAMESPACE)
    try:
        wheels.get(name="rear", namespace=NAMESPACE)
        raise AssertionError("what was deleted is not found")
    except NotFoundError:
        pass
    client.ApiextensionsV1Api().delete_custom_resource_definition(f"{PLURAL}.{GROUP}")
    custom = client.CustomObjectsApi()
    until(lambda: gone(lambda: custom.list_cluster_custom_object(GROUP, VERSION, PLURAL)), "the kind is no longer served")


def access():
    core, authorization = client.CoreV1Api(), client.AuthorizationV1Api()
    core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": "robot"}})
    attributes = {"namespace": NAMESPACE, "verb": "list", "resource": "configmaps"}
    mine = authorization.create_self_subject_access_review({"spec": {"resourceAttributes": attributes}})
    assert mine.status.allowed is True
    robot = f"system:serviceaccount:{NAMESPACE}:robot"
    theirs = authorization.create_subject_access_review({"spec": {"user": robot, "resourceAttributes": attributes}})
    assert theirs.status.allowed is False
    token = core.create_namespaced_service_account_token("robot", NAMESPACE, {"spec": {"expirationSeconds": 600}})
    assert token.status.token and token.status.expiration_timestamp
    reviewed = client.AuthenticationV1Api().create_token_review({"spec": {"token": token.status.token}})
    assert reviewed.status.authenticated and reviewed.status.user.username == robot
    as_robot = client.CoreV1Api(with_token(token.status.token))
    status = refused(403, "Forbidden", lambda: as_robot.list_namespaced_config_map(NAMESPACE))
    assert status["message"] == (
        f'configmaps is forbidden: User "{robot}" cannot list resource "configmaps" in API group "" '
        f'in the namespace "{NAMESPACE}"'
    ), status
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    rbac = client.RbacAuthorizationV1Api()
    rbac.create_namespaced_role(NAMESPACE, {"metadata": {"name": "lister"}, "rules": rules})
    subjects = [{"kind": "ServiceAccount", "name": "robot", "namespace": NAMESPACE}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lister"}
    rbac.create_namespaced_role_binding(NAMESPACE, {"metadata": {"name": "listers"}, "subjects": subjects, "roleRef": role})
    until(lambda: not forbidden(lambda: as_robot.list_namespaced_config_map(NAMESPACE)), "the binding counts")
    refused(401, "Unauthorized", lambda: client.CoreV1Api(with_token("wrong")).list_node())


def with_token(token):
    """A client of the same server that has nothing but this token."""
    settings = client.Configuration.get_default_copy()
    settings.api_key = {"BearerToken": f"Bearer {token}"}
    settings.refresh_api_key_hook = settings.cert_file = settings.key_file = None
    return client.ApiClient(settings)


def refused(code, reason, ask):
    """The Status that the server sent; the client's own reason is that of HTTP, written with or without spaces."""
    try:
        ask()
    except ApiException as error:
        assert error.status == code, (error.status, error.body)
        assert error.reason.replace(" ", "") == reason.replace(" ", ""), error.reason
        assert error.headers["Content-Type"] == "application/json", error.headers
        status = json.loads(error.body)
        assert status["kind"] == "Status" and status["code"] == code, status
        return status
    raise AssertionError(f"should have been refused with {code}")


def gone(ask):
    return answers_with(404, ask)


def forbidden(ask):
    return answers_with(403, ask)


def answers_with(code, ask):
    try:
        ask()
    except ApiException as error:
        assert error.status == code, (error.status, error.body)
        return True
    return False


def until(holds, what):
    give_up_at = time.monotonic() + SOON_SECONDS
    while not holds():
        assert time.monotonic() < give_up_at, f"waited in vain until {what}"
        time.sleep(0.1)


if __name__ == "__main__":
    main()
