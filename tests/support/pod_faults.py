"""What may be wrong with a pod, and which fields a real API server names for it: of a container, and of a pod's spec.

Tables of a fault a row, in the form of `tests.embedded.support.cases`.
"""

from __future__ import annotations

CONTAINERS = """
fields | causes
{imagePullPolicy: Sometimes} | NotSupported imagePullPolicy
{ports: [{containerPort: 0}]} | Required ports[0].containerPort
{ports: [{containerPort: 70000}]} | Invalid ports[0].containerPort
{ports: [{containerPort: 1, protocol: x}]} | NotSupported ports[0].protocol
{ports: [{containerPort: 1, name: a}, {containerPort: 2, name: a}]} | Duplicate ports[1].name
{ports: [{containerPort: 1, hostPort: 5}, {containerPort: 2, hostPort: 5}]} | Duplicate ports[1].hostPort
{env: [{name: A=B}]} | Invalid env[0].name
{env: [{name: A, value: x, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]} | Invalid env[0].valueFrom
{env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.nodename}}}]} | NotSupported
    env[0].valueFrom.fieldRef.fieldPath
{volumeMounts: [{name: v, mountPath: /v}]} | NotFound volumeMounts[0].name
{livenessProbe: {tcpSocket: {port: 1}, successThreshold: 2}} | Invalid livenessProbe.successThreshold
{readinessProbe: {}} | Required readinessProbe
{lifecycle: {preStop: {sleep: {seconds: 31}}}} | Invalid lifecycle.preStop.sleep
{resources: {requests: {foo: '1'}}} | Invalid resources.requests[foo]; Invalid resources.requests[foo]
{resources: {requests: {cpu: '-1'}}} | Invalid resources.requests[cpu]
{resources: {requests: {x.io/gpu: '1'}}} | Required resources.limits
{resources: {limits: {x.io/gpu: 1500m}}} | Invalid resources.limits[x.io/gpu]; Invalid
    resources.requests[x.io/gpu]
{resources: {limits: {x.io/gpu: '2'}, requests: {x.io/gpu: '1'}}} | Invalid resources.requests
{resources: {limits: {hugepages-2Mi: 2Mi}}} | Forbidden resources
{resources: {limits: {hugepages-2Mi: 3Mi, cpu: '1'}}} | Invalid resources.limits[hugepages-2Mi]; Invalid
    resources.requests[hugepages-2Mi]
{resources: {claims: [{name: gpu}]}} | NotFound resources.claims[0]
{securityContext: {runAsUser: -1}} | Invalid securityContext.runAsUser
{ports: [{containerPort: 1, name: A--}]} | Invalid ports[0].name; Invalid ports[0].name; Invalid
    ports[0].name; Invalid ports[0].name
{ports: [{containerPort: 1, name: a}, {containerPort: 2, hostPort: 70000}]} | Invalid ports[1].hostPort
{terminationMessagePolicy: x} | NotSupported terminationMessagePolicy
{env: [{name: A, valueFrom: {}}, {name: B, valueFrom: {secretKeyRef: {name: s}}}]} | Invalid env[0].valueFrom;
    Required env[1].valueFrom.secretKeyRef.key
{env: [{name: A, valueFrom: {fieldRef: {fieldPath: a}, resourceFieldRef: {resource: a}}}]} | Invalid
    env[0].valueFrom.fieldRef.fieldPath; NotSupported env[0].valueFrom.resourceFieldRef.resource; Invalid
    env[0].valueFrom
{env: [{name: A, valueFrom: {fieldRef: {fieldPath: "metadata.labels['a b']"}}}]} | Invalid env[0].valueFrom.fieldRef
{envFrom: [{}, {secretRef: {}}]} | Invalid envFrom; Required envFrom[1].secretRef.name
{volumeDevices: [{name: v, devicePath: ../x}]} | NotFound volumeDevices[0].name; Invalid volumeDevices[0].devicePath
{livenessProbe: {httpGet: {port: 0, scheme: x, httpHeaders: [{name: 'a b'}]}, periodSeconds: -1}} | Invalid
    livenessProbe.httpGet.port; NotSupported livenessProbe.httpGet.scheme; Invalid livenessProbe.httpGet.httpHeaders;
    Invalid livenessProbe.periodSeconds
{startupProbe: {exec: {}, grpc: {port: 1}, terminationGracePeriodSeconds: 0}} | Required startupProbe.exec.command;
    Forbidden startupProbe.grpc; Invalid startupProbe.terminationGracePeriodSeconds
{readinessProbe: {tcpSocket: {port: p_}, terminationGracePeriodSeconds: 1}} | Invalid readinessProbe.tcpSocket.port;
    Invalid readinessProbe.terminationGracePeriodSeconds
{resources: {claims: [{}, {name: gpu}, {name: gpu}]}} | Required resources.claims[0]; NotFound resources.claims[1];
    Duplicate resources.claims[2]; NotFound resources.claims[2]
{resources: {requests: {cpu: '2', memory: 1Gi}, limits: {cpu: '1', memory: 2Gi}}} | Invalid resources.requests
{resizePolicy: [{resourceName: gpu, restartPolicy: NotRequired}]} | NotSupported resizePolicy
{securityContext: {procMount: Unmasked, seccompProfile: {type: Localhost}}} | Invalid securityContext.procMount;
    Required securityContext.seccompProfile.localhostProfile
{securityContext: {capabilities: {add: [CAP_SYS_ADMIN]}, privileged: true, allowPrivilegeEscalation: false}} |
    Invalid securityContext; Invalid securityContext
{securityContext: {appArmorProfile: {type: RuntimeDefault, localhostProfile: x}}} | Invalid
    securityContext.appArmorProfile.localhostProfile
"""
PODS = """
spec | causes
{containers: []} | Required spec.containers
{containers: [{image: i}]} | Required spec.containers[0].name
{containers: [{name: A, image: i}]} | Invalid spec.containers[0].name
{containers: [{name: c}]} | Required spec.containers[0].image
{containers: [{name: c, image: ' i'}]} | Invalid spec.containers[0].image
{containers: [{name: c, image: i}, {name: c, image: i}]} | Duplicate spec.containers[1].name
{initContainers: [{name: c, image: i}]} | Duplicate spec.initContainers[0].name
{initContainers: [{name: i, image: i, lifecycle: {}}]} | Forbidden spec.initContainers[0].lifecycle
{ephemeralContainers: [{name: e, image: i}]} | Forbidden spec.ephemeralContainers
{volumes: [{name: v}, {name: v}]} | Duplicate spec.volumes[1].name
{volumes: [{name: v, emptyDir: {}, hostPath: {path: /}}]} | Forbidden spec.volumes[0].hostPath
{volumes: [{name: v, secret: {}}]} | Required spec.volumes[0].secret.secretName
{restartPolicy: x} | NotSupported spec.restartPolicy
{dnsPolicy: None} | Required spec.dnsConfig
{nodeSelector: {a b: c}} | Invalid spec.nodeSelector
{nodeSelector: {a: b c}} | Invalid spec.nodeSelector
{nodeName: A} | Invalid spec.nodeName
{activeDeadlineSeconds: 0} | Invalid spec.activeDeadlineSeconds
{preemptionPolicy: x} | NotSupported spec.preemptionPolicy
{overhead: {cpu: '-1'}} | Invalid spec.overhead.limits[cpu]
{hostNetwork: true, containers: [{name: c, image: i, ports: [{containerPort: 1, hostPort: 2}]}]} | Invalid
    spec.containers[0].ports[0].hostPort
{schedulingGates: [{name: a b}]} | Invalid spec.schedulingGates[0]
{schedulingGates: [{name: a}], nodeName: n} | Forbidden spec.nodeName
{tolerations: [{operator: Equal, value: x}]} | Invalid spec.tolerations[0].operator
{tolerations: [{key: k, operator: Exists, value: x}]} | Invalid spec.tolerations[0].operator
{tolerations: [{key: k, operator: Exists, effect: 'No'}]} | NotSupported spec.tolerations[0].effect
{tolerations: [{key: k, operator: Exists, tolerationSeconds: 1}]} | Invalid spec.tolerations[0].effect
{resourceClaims: [{name: a}]} | Invalid spec.resourceClaims[0]
{resourceClaims: [{name: a, resourceClaimName: x, resourceClaimTemplateName: y}]} | Invalid
    spec.resourceClaims[0]
{resourceClaims: [{name: a, resourceClaimName: x}, {name: a, resourceClaimName: x}]} | Duplicate
    spec.resourceClaims[1].name
{resources: {requests: {cpu: '1'}}, containers: [{name: c, image: i, resources: {requests: {cpu: '2'}}}]} |
    Invalid spec.resources.requests[cpu]
{dnsPolicy: Weird} | NotSupported spec.dnsPolicy
{dnsPolicy: None, dnsConfig: {searches: [a]}} | Required spec.dnsConfig.nameservers
{dnsConfig: {nameservers: [a, 1.1.1.1, 1.1.1.2, 1.1.1.3], options: [{}]}} | Invalid spec.dnsConfig.nameservers;
    Invalid spec.dnsConfig.nameservers[0]; Required spec.dnsConfig.options[0]
{volumes: [{name: V, nfs: {server: s, path: x}}, {name: w, hostPath: {path: /a/../b, type: x}}]} | Invalid
    spec.volumes[0].name; Invalid spec.volumes[0].nfs.path; Invalid spec.volumes[1].hostPath.path; NotSupported
    spec.volumes[1].hostPath.type
{volumes: [{name: v, configMap: {name: m, defaultMode: 512, items: [{key: k, path: /x}, {}]}}]} | Invalid
    spec.volumes[0].configMap.defaultMode; Invalid spec.volumes[0].configMap.items[0].path; Required
    spec.volumes[0].configMap.items[1].key; Required spec.volumes[0].configMap.items[1].path
{volumes: [{name: v, projected: {sources: [{secret: {name: s}, serviceAccountToken: {path: t, expirationSeconds:
    9}}]}}], serviceAccountName: a} | Forbidden spec.volumes[0].projected.sources[0]; Invalid
    spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds
{volumes: [{name: v, ephemeral: {}}, {name: w, csi: {driver: a_b}}, {name: x, persistentVolumeClaim: {}}]} | Required
    spec.volumes[0].ephemeral.volumeClaimTemplate; Invalid spec.volumes[1].csi.driver; Required
    spec.volumes[2].persistentVolumeClaim.claimName
{volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [x], resources: {requests: {storage:
    '0'}}, dataSource: {kind: x, name: y}}}}}]} | NotSupported
    spec.volumes[0].ephemeral.volumeClaimTemplate.spec.accessModes; Invalid
    spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources[storage]; Invalid
    spec.volumes[0].ephemeral.volumeClaimTemplate.spec.dataSource
{volumes: [{name: v, downwardAPI: {items: [{path: p}]}}, {name: e, emptyDir: {sizeLimit: '-1'}}]} | Required
    spec.volumes[0].downwardAPI.items[0]; Forbidden spec.volumes[1].emptyDir.sizeLimit
{volumes: [{name: v, emptyDir: {}}], containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v, subPath:
    /x}, {name: v, mountPath: /v, mountPropagation: Bidirectional}], volumeDevices: [{name: v, devicePath: /d}]}]} |
    Invalid spec.containers[0].volumeMounts[0].name; Invalid spec.containers[0].volumeMounts.subPath; Invalid
    spec.containers[0].volumeMounts[1].mountPath; Invalid spec.containers[0].volumeMounts[1].name; Forbidden
    spec.containers[0].volumeMounts.mountPropagation; Invalid spec.containers[0].volumeDevices[0].name; Invalid
    spec.containers[0].volumeDevices[0].name
{initContainers: [{name: i, image: i, restartPolicy: Always, livenessProbe: {}}]} | Required
    spec.initContainers[0].livenessProbe
{restartPolicy: Never, containers: [{name: c, image: i, resizePolicy: [{resourceName: cpu, restartPolicy:
    RestartContainer}]}]} | Invalid spec.containers[0].resizePolicy
{hostUsers: false, hostNetwork: true, hostPID: true} | Forbidden spec.hostNetwork; Forbidden spec.HostPID
{hostPID: true, shareProcessNamespace: true} | Invalid spec.securityContext.shareProcessNamespace
{securityContext: {fsGroup: -1, supplementalGroups: [-1], fsGroupChangePolicy: x, sysctls: [{name: a}, {name: a},
    {name: A}]}} | Invalid spec.securityContext.fsGroup; Invalid spec.securityContext.supplementalGroups[0]; Duplicate
    spec.securityContext.sysctls[1].name; Invalid spec.securityContext.sysctls[2].name; NotSupported
    spec.securityContext.fsGroupChangePolicy
{readinessGates: [{conditionType: a b}], hostname: a.b, subdomain: A} | Invalid spec.readinessGates[0].conditionType;
    Invalid spec.hostname; Invalid spec.subdomain
{hostAliases: [{ip: x, hostnames: [A]}], runtimeClassName: A, os: {name: x}} | Invalid spec.hostAliases[0].ip; Invalid
    spec.hostAliases[0].hostnames[0]; Invalid spec.runtimeClassName; NotSupported spec.os
{tolerations: [{key: a b, operator: Is}]} | Invalid spec.tolerations[0].key; NotSupported spec.tolerations[0].operator
{initContainers: [{name: i, image: i, restartPolicy: Always, resources: {requests: {memory: 1Gi}}}], resources:
    {requests: {memory: 512Mi}, claims: [{name: x}]}} | Forbidden spec.resources.claims; Invalid
    spec.resources.requests[memory]
{affinity: {nodeAffinity: {$R: {nodeSelectorTerms: []}}}} | Required spec.affinity.nodeAffinity.$R.nodeSelectorTerms
{affinity: {nodeAffinity: {$R: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Is}]}]}}}} | Invalid
    spec.affinity.nodeAffinity.$R.nodeSelectorTerms[0].matchExpressions[0].operator
{affinity: {nodeAffinity: {$R: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Gt, values: []}]}]}}}} |
    Required spec.affinity.nodeAffinity.$R.nodeSelectorTerms[0].matchExpressions[0].values
{affinity: {nodeAffinity: {$R: {nodeSelectorTerms: [{matchFields: [{key: spec.x, operator: In, values: [a]}]}]}}}} |
    Invalid spec.affinity.nodeAffinity.$R.nodeSelectorTerms[0].matchFields[0].key
{affinity: {podAffinity: {$R: [{topologyKey: z, labelSelector: {matchExpressions: [{key: a, operator: In}]}}]}}} |
    Required spec.affinity.podAffinity.$R[0].labelSelector.matchExpressions[0].values
{affinity: {podAntiAffinity: {$R: [{topologyKey: z, matchLabelKeys: [a]}]}}} | Forbidden
    spec.affinity.podAntiAffinity.$R[0].matchLabelKeys
{affinity: {podAffinity: {$R: [{topologyKey: z, namespaces: [A]}]}}} | Invalid spec.affinity.podAffinity.$R[0].namespace
{affinity: {nodeAffinity: {$P: [{weight: 0, preference: {}}]}}} | Invalid spec.affinity.nodeAffinity.$P[0].weight
{affinity: {podAffinity: {$P: [{weight: 101, podAffinityTerm: {topologyKey: '', labelSelector: {matchLabels: {a: b},
    matchExpressions: [{key: a, operator: Exists, values: [x]}]}, matchLabelKeys: [k], mismatchLabelKeys: [k]}}]}}} |
    Invalid spec.affinity.podAffinity.$P[0].weight; Forbidden
    spec.affinity.podAffinity.$P[0].podAffinityTerm.labelSelector.matchExpressions[0].values; Invalid
    spec.affinity.podAffinity.$P[0].podAffinityTerm.matchLabelKeys[0]; Required
    spec.affinity.podAffinity.$P[0].podAffinityTerm.topologyKey; Invalid
    spec.affinity.podAffinity.$P[0].podAffinityTerm.topologyKey; Invalid
    spec.affinity.podAffinity.$P[0].podAffinityTerm.topologyKey
{topologySpreadConstraints: [{maxSkew: 0, whenUnsatisfiable: Maybe, minDomains: 0, nodeAffinityPolicy: x,
    matchLabelKeys: [a]}]} | Invalid $S[0].maxSkew; Required $S[0].topologyKey; NotSupported $S[0].whenUnsatisfiable;
    Invalid $S[0].minDomains; Invalid $S[0].minDomains; NotSupported $S[0].nodeAffinityPolicy; Forbidden
    $S[0].matchLabelKeys
"""
_SHORT = {
    "$R": "requiredDuringSchedulingIgnoredDuringExecution",
    "$P": "preferredDuringSchedulingIgnoredDuringExecution",
    "$S": "spec.topologySpreadConstraints",
}
for _short, _long in _SHORT.items():
    PODS = PODS.replace(_short, _long)
