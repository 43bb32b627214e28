"""Request bodies in Kubernetes' protobuf envelope, as some clients send them for built-in kinds.

kubectl's typed commands (create, drain, auth) may send `application/vnd.kubernetes.protobuf` and take JSON in
return. Field numbers are those of the `generated.proto` files of k8s.io/api and apimachinery; types come from
`schema_source`, so a message needs no more than its numbers. The tables hold what such commands send; a message
or field that they lack is refused with a 415, never dropped.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from agent_scheduler.objects.times import time_text

from . import schema_source as source
from .errors import ApiError, bad_request
from .resource import Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"

#: Model, then number:field.
_NUMBERS = """
V1ObjectMeta 1:name 2:generateName 3:namespace 4:selfLink 5:uid 6:resourceVersion 7:generation
V1ObjectMeta 8:creationTimestamp 9:deletionTimestamp 10:deletionGracePeriodSeconds 11:labels 12:annotations
V1ObjectMeta 13:ownerReferences 14:finalizers 17:managedFields
V1ManagedFieldsEntry 1:manager 2:operation 3:apiVersion 4:time 6:fieldsType 7:fieldsV1 8:subresource
V1OwnerReference 1:kind 3:name 4:uid 5:apiVersion 6:controller 7:blockOwnerDeletion
V1LabelSelector 1:matchLabels 2:matchExpressions
V1LabelSelectorRequirement 1:key 2:operator 3:values
V1DeleteOptions 1:gracePeriodSeconds 2:preconditions 3:orphanDependents 4:propagationPolicy 5:dryRun
V1Preconditions 1:uid 2:resourceVersion
V1Eviction 1:metadata 2:deleteOptions
V1Binding 1:metadata 2:target
V1ObjectReference 1:kind 2:namespace 3:name 4:uid 5:apiVersion 6:resourceVersion 7:fieldPath
V1SelfSubjectAccessReview 1:metadata 2:spec 3:status
V1SelfSubjectAccessReviewSpec 1:resourceAttributes 2:nonResourceAttributes
V1SubjectAccessReview 1:metadata 2:spec 3:status
V1LocalSubjectAccessReview 1:metadata 2:spec 3:status
V1SubjectAccessReviewSpec 1:resourceAttributes 2:nonResourceAttributes 3:user 4:groups 6:uid
V1SubjectAccessReviewStatus 1:allowed 2:reason 3:evaluationError 4:denied
V1ResourceAttributes 1:namespace 2:verb 3:group 4:version 5:resource 6:subresource 7:name
V1NonResourceAttributes 1:path 2:verb
V1SelfSubjectRulesReview 1:metadata 2:spec 3:status
V1SelfSubjectRulesReviewSpec 1:namespace
V1SubjectRulesReviewStatus 1:resourceRules 2:nonResourceRules 3:incomplete 4:evaluationError
V1SelfSubjectReview 1:metadata 2:status
V1SelfSubjectReviewStatus 1:userInfo
V1UserInfo 1:username 2:uid 3:groups
V1TokenReview 1:metadata 2:spec 3:status
V1TokenReviewSpec 1:token 2:audiences
V1TokenReviewStatus 1:authenticated 2:user 3:error 4:audiences
AuthenticationV1TokenRequest 1:metadata 2:spec 3:status
V1TokenRequestSpec 1:audiences 3:boundObjectRef 4:expirationSeconds
V1TokenRequestStatus 1:token 2:expirationTimestamp
V1BoundObjectReference 1:kind 2:apiVersion 3:name 4:uid
V1Scale 1:metadata 2:spec 3:status
V1ScaleSpec 1:replicas
V1ScaleStatus 1:replicas 2:selector
V1Namespace 1:metadata 2:spec 3:status
V1NamespaceSpec 1:finalizers
V1NamespaceStatus 1:phase
V1ConfigMap 1:metadata 2:data 3:binaryData 4:immutable
V1Secret 1:metadata 2:data 3:type 4:stringData 5:immutable
V1ServiceAccount 1:metadata 2:secrets 3:imagePullSecrets 4:automountServiceAccountToken
V1LocalObjectReference 1:name
V1PriorityClass 1:metadata 2:value 3:globalDefault 4:description 5:preemptionPolicy
V1PodDisruptionBudget 1:metadata 2:spec 3:status
V1PodDisruptionBudgetSpec 1:minAvailable 2:selector 3:maxUnavailable 4:unhealthyPodEvictionPolicy
V1PodDisruptionBudgetStatus 1:observedGeneration 3:disruptionsAllowed 4:currentHealthy 5:desiredHealthy
V1PodDisruptionBudgetStatus 6:expectedPods
V1ResourceQuota 1:metadata 2:spec 3:status
V1ResourceQuotaSpec 1:hard 2:scopes
V1ResourceQuotaStatus 1:hard 2:used
V1Role 1:metadata 2:rules
V1ClusterRole 1:metadata 2:rules 3:aggregationRule
V1AggregationRule 1:clusterRoleSelectors
V1PolicyRule 1:verbs 2:apiGroups 3:resources 4:resourceNames 5:nonResourceURLs
V1RoleBinding 1:metadata 2:subjects 3:roleRef
V1ClusterRoleBinding 1:metadata 2:subjects 3:roleRef
RbacV1Subject 1:kind 2:apiGroup 3:name 4:namespace
V1RoleRef 1:apiGroup 2:kind 3:name
V1Service 1:metadata 2:spec 3:status
V1ServiceSpec 1:ports 2:selector 3:clusterIP 4:type 5:externalIPs 7:sessionAffinity 8:loadBalancerIP
V1ServiceSpec 9:loadBalancerSourceRanges 10:externalName 11:externalTrafficPolicy 12:healthCheckNodePort
V1ServiceSpec 13:publishNotReadyAddresses 17:ipFamilyPolicy 18:clusterIPs 19:ipFamilies
V1ServiceSpec 20:allocateLoadBalancerNodePorts 21:loadBalancerClass 22:internalTrafficPolicy 23:trafficDistribution
V1ServicePort 1:name 2:protocol 3:port 4:targetPort 5:nodePort 6:appProtocol
V1ServiceStatus 1:loadBalancer
V1LoadBalancerStatus
V1Deployment 1:metadata 2:spec 3:status
V1DeploymentSpec 1:replicas 2:selector 3:template 4:strategy 5:minReadySeconds 6:revisionHistoryLimit 7:paused
V1DeploymentSpec 9:progressDeadlineSeconds
V1DeploymentStrategy 1:type 2:rollingUpdate
V1RollingUpdateDeployment 1:maxUnavailable 2:maxSurge
V1DeploymentStatus 1:observedGeneration 2:replicas 3:updatedReplicas 4:availableReplicas 5:unavailableReplicas
V1DeploymentStatus 7:readyReplicas 8:collisionCount 9:terminatingReplicas
V1Job 1:metadata 2:spec 3:status
V1JobSpec 1:parallelism 2:completions 3:activeDeadlineSeconds 4:selector 5:manualSelector 6:template
V1JobSpec 7:backoffLimit 8:ttlSecondsAfterFinished 9:completionMode 10:suspend 12:backoffLimitPerIndex
V1JobSpec 13:maxFailedIndexes 14:podReplacementPolicy 15:managedBy
V1JobStatus 2:startTime 3:completionTime 4:active 5:succeeded 6:failed
V1CronJob 1:metadata 2:spec 3:status
V1CronJobSpec 1:schedule 2:startingDeadlineSeconds 3:concurrencyPolicy 4:suspend 5:jobTemplate
V1CronJobSpec 6:successfulJobsHistoryLimit 7:failedJobsHistoryLimit 8:timeZone
V1CronJobStatus 4:lastScheduleTime 5:lastSuccessfulTime
V1JobTemplateSpec 1:metadata 2:spec
V1PodTemplateSpec 1:metadata 2:spec
V1PodSpec 2:containers 3:restartPolicy 4:terminationGracePeriodSeconds 5:activeDeadlineSeconds 6:dnsPolicy
V1PodSpec 7:nodeSelector 8:serviceAccountName 9:serviceAccount 10:nodeName 11:hostNetwork 12:hostPID 13:hostIPC
V1PodSpec 15:imagePullSecrets 16:hostname 17:subdomain 19:schedulerName 20:initContainers
V1PodSpec 21:automountServiceAccountToken 22:tolerations 24:priorityClassName 25:priority
V1Toleration 1:key 2:operator 3:value 4:effect 5:tolerationSeconds
V1Container 1:name 2:image 3:command 4:args 5:workingDir 6:ports 7:env 8:resources 13:terminationMessagePath
V1Container 14:imagePullPolicy 16:stdin 17:stdinOnce 18:tty 20:terminationMessagePolicy
V1ContainerPort 1:name 2:hostPort 3:containerPort 4:protocol 5:hostIP
V1EnvVar 1:name 2:value
V1ResourceRequirements 1:limits 2:requests
"""


def _parse_numbers() -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for line in _NUMBERS.strip().splitlines():
        model, *pairs = line.split()
        numbers = found.setdefault(model, {})
        for pair in pairs:
            number, _, field = pair.partition(":")
            numbers[int(number)] = field
    return found


_FIELDS = _parse_numbers()


def decode(body: bytes) -> Object:
    """The object in an envelope. Raises 400 for bytes that are none, 415 for what the tables lack."""
    if not body.startswith(_MAGIC):
        raise bad_request(
            "the body is not in Kubernetes' protobuf envelope: it does not begin with its magic"
        )
    try:
        envelope = dict(_fields(memoryview(body)[len(_MAGIC) :]))
        names = {number: _text(text) for number, text in _fields(envelope.get(1, b""))}
        api_version, kind = names.get(1, ""), names.get(2, "")
        group, _, version = api_version.rpartition("/")
        model = source.model_name(group, version, kind) or source.model_name("", "v1", kind)
        obj = _message(model or kind, envelope.get(2, b""))
    except (IndexError, TypeError, ValueError) as error:
        raise bad_request(f"the body is not in Kubernetes' protobuf envelope: {error}") from None
    return {"apiVersion": api_version, "kind": kind, **obj}


def _fields(data: Any) -> Iterator[tuple[int, Any]]:
    """Field numbers and raw values: an int, or a slice of `data`."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire == 2:
            size, at = _varint(data, at)
            if at + size > end:
                raise IndexError("a field is longer than its message")
            yield number, data[at : at + size]
            at += size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            yield number, data[at : at + size]
            at += size
        else:
            raise IndexError(f"wire type {wire} is not supported")


def _varint(data: Any, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError("a number is longer than 64 bits")


def _message(model: str, data: Any) -> Object:
    numbers = _FIELDS.get(model)
    if numbers is None:
        raise _unknown(f"type {source.go_name(model)}")
    fields = source.struct(model).fields
    obj: Object = {}
    for number, raw in _fields(data):
        name = numbers.get(number)
        if name is None:
            raise _unknown(f"field {number} of {source.go_name(model)}")
        type_ = fields[name].type
        if type_.kind == "list" and type_.item is not None:
            obj.setdefault(name, []).append(_value(type_.item, raw))
        elif type_.kind == "map" and type_.item is not None:
            entry = dict(_fields(raw))
            key = _text(entry.get(1, b""))
            obj.setdefault(name, {})[key] = _value(type_.item, entry.get(2, b""))
        else:
            obj[name] = _value(type_, raw)
    return obj


def _value(type_: source.Type, raw: Any) -> Any:
    if type_.kind == "string":
        return _text(raw)
    if type_.kind == "boolean":
        return bool(raw)
    if type_.kind == "integer":
        return raw - (1 << 64) if raw >> 63 else raw
    if type_.kind == "bytes":
        return base64.b64encode(_slice(raw)).decode()
    if type_.kind == "quantity":
        return _text(dict(_fields(raw)).get(1, b""))
    if type_.kind == "time":
        parts = dict(_fields(raw))
        if not parts:
            return None
        seconds = _value(_INTEGER, parts.get(1, 0))
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        return time_text(moment)
    if type_.kind == "intorstring":
        parts = dict(_fields(raw))
        return _text(parts.get(3, b"")) if parts.get(1) else _value(_INTEGER, parts.get(2, 0))
    if type_.kind == source.RAW:
        # A message around JSON, as FieldsV1 is.
        return orjson.loads(_slice(dict(_fields(raw)).get(1, b"null")))
    if type_.struct:
        return _message(type_.struct, raw)
    raise _unknown(f"a value of type {type_.go}")


def _slice(raw: Any) -> bytes:
    # bytes(number) would make that many zeros.
    if isinstance(raw, int):
        raise TypeError("a number stands where bytes are expected")
    return bytes(raw)


def _text(raw: Any) -> str:
    return _slice(raw).decode()


_INTEGER = source.Type("integer", "int64")


def _unknown(what: str) -> ApiError:
    return ApiError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in a protobuf form that this server does not know ({what}) - accepted "
        "media types include: application/json, application/yaml",
    )
