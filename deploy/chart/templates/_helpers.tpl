{{- define "sawhorse.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "sawhorse.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "sawhorse.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "sawhorse.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects a service's pods: dict "root" $ "service" name. Never changes, as a Deployment's selector cannot. */}}
{{- define "sawhorse.selector" -}}
app.kubernetes.io/name: {{ include "sawhorse.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .service }}
{{- end -}}

{{- define "sawhorse.labels" -}}
{{ include "sawhorse.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | quote }}
{{- with .root.Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Name, namespace, labels and annotations of an object: dict "root" $ "service" name, and "cluster" true without a namespace. */}}
{{- define "sawhorse.metadata" -}}
name: {{ include "sawhorse.fullname" .root }}-{{ .service }}
{{- if not .cluster }}
namespace: {{ .root.Release.Namespace }}
{{- end }}
labels:
  {{- include "sawhorse.labels" . | nindent 2 }}
{{- with .root.Values.additionalAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "sawhorse.redisSecret" -}}
{{- default (printf "%s-redis" (include "sawhorse.fullname" .)) .Values.redis.existingSecret -}}
{{- end -}}

{{- define "sawhorse.redisUrl" -}}
{{- if .Values.redis.enabled -}}
redis://{{ include "sawhorse.fullname" . }}-redis.{{ .Release.Namespace }}:6379/0
{{- else -}}
{{- required "redis.url: required with redis.enabled=false; write redis://host:6379/0" .Values.redis.url -}}
{{- end -}}
{{- end -}}

{{- define "sawhorse.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .user }}
runAsGroup: {{ .user }}
fsGroup: {{ .user }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "sawhorse.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* One environment variable from a setting; nothing when the setting is empty, so that the service's default counts. */}}
{{- define "sawhorse.env" -}}
{{- range $name, $value := . }}
{{- if ne (toString $value) "" }}
- {name: {{ $name }}, value: {{ toString $value | quote }}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "sawhorse.placement" -}}
{{- $values := .root.Values -}}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- $selector := dict "labelSelector" (dict "matchLabels" (include "sawhorse.selector" . | fromYaml)) }}
  {{- range $values.topologySpreadConstraints }}
  - {{- merge (deepCopy .) $selector | toYaml | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/*
Deployment, ServiceAccount, Service and PodDisruptionBudget of a service:
dict "root" $ "service" name "port" number "kubernetes" bool "env" dict.
*/}}
{{- define "sawhorse.service" -}}
{{- $root := .root -}}
{{- $values := index $root.Values .service -}}
{{- $fullname := include "sawhorse.fullname" $root -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "sawhorse.metadata" . | nindent 2 }}
  {{- with $values.serviceAccount.annotations }}
  {{- if not $root.Values.additionalAnnotations }}
  annotations:
  {{- end }}
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
---
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "sawhorse.metadata" . | nindent 2 }}
spec:
  replicas: {{ $values.replicas }}
  revisionHistoryLimit: {{ $root.Values.revisionHistoryLimit }}
  strategy:
    rollingUpdate: {maxUnavailable: 1}
  selector:
    matchLabels:
      {{- include "sawhorse.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "sawhorse.labels" . | nindent 8 }}
        {{- with $root.Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $root.Values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ $fullname }}-{{ .service }}
      automountServiceAccountToken: {{ .kubernetes }}
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ $root.Values.terminationGracePeriodSeconds }}
      securityContext:
        {{- include "sawhorse.podSecurity" (dict "user" 65532) | nindent 8 }}
      {{- include "sawhorse.placement" . | nindent 6 }}
      containers:
        - name: {{ .service }}
          image: {{ printf "%s/%s:%s" $root.Values.image.repository .service (default $root.Chart.AppVersion $root.Values.image.tag) | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          securityContext:
            {{- include "sawhorse.containerSecurity" . | nindent 12 }}
          env:
            {{- $common := dict
              "CLUSTER_NAME" (required "settings.clusterName: required; the name of the cluster" $root.Values.settings.clusterName)
              "LOG_LEVEL" $root.Values.logLevel
              "REDIS_URL" (include "sawhorse.redisUrl" $root)
              "GRPC_ADDRESS" (printf "0.0.0.0:%d" (int .port)) }}
            {{- if or $root.Values.redis.enabled $root.Values.redis.existingSecret }}
            {{- $_ := set $common "REDIS_PASSWORD_FILE" "/secrets/redis/redis-password" }}
            {{- end }}
            {{- if $root.Values.grpc.tlsSecretName }}
            {{- $_ := set $common "GRPC_TLS_CERT_FILE" "/secrets/grpc/tls.crt" }}
            {{- $_ := set $common "GRPC_TLS_KEY_FILE" "/secrets/grpc/tls.key" }}
            {{- $_ := set $common "GRPC_TLS_CA_FILE" "/secrets/grpc/ca.crt" }}
            {{- else }}
            {{- $_ := set $common "INSECURE_GRPC" "true" }}
            {{- end }}
            {{- include "sawhorse.env" (merge $common .env) | nindent 12 }}
            {{- with $values.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - {name: grpc, containerPort: {{ .port }}}
            - {name: http-metrics, containerPort: 8080}
            - {name: http, containerPort: 8081}
          startupProbe:
            httpGet: {path: /healthz, port: http}
            periodSeconds: 2
            failureThreshold: 30
          livenessProbe:
            httpGet: {path: /healthz, port: http}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: http}
            periodSeconds: 5
            timeoutSeconds: 3
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- if or $root.Values.redis.enabled $root.Values.redis.existingSecret }}
            - {name: redis, mountPath: /secrets/redis, readOnly: true}
            {{- end }}
            {{- if $root.Values.grpc.tlsSecretName }}
            - {name: grpc, mountPath: /secrets/grpc, readOnly: true}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {sizeLimit: 64Mi}
        {{- if or $root.Values.redis.enabled $root.Values.redis.existingSecret }}
        - name: redis
          secret: {secretName: {{ include "sawhorse.redisSecret" $root }}, defaultMode: 0440}
        {{- end }}
        {{- with $root.Values.grpc.tlsSecretName }}
        - name: grpc
          secret: {secretName: {{ . }}, defaultMode: 0440}
        {{- end }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "sawhorse.metadata" . | nindent 2 }}
spec:
  selector:
    {{- include "sawhorse.selector" . | nindent 4 }}
  ports:
    - {name: grpc, port: {{ .port }}, targetPort: grpc, appProtocol: grpc}
    - {name: http-metrics, port: 8080, targetPort: http-metrics}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "sawhorse.metadata" . | nindent 2 }}
spec:
  {{- toYaml $root.Values.podDisruptionBudget | nindent 2 }}
  selector:
    matchLabels:
      {{- include "sawhorse.selector" . | nindent 6 }}
{{- end -}}

{{/* Binds the ClusterRole, and the Role when there is one ("leases" names), of a service to its account. */}}
{{- define "sawhorse.bindings" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- include "sawhorse.metadata" (merge (dict "cluster" true) .) | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ include "sawhorse.fullname" .root }}-{{ .service }}}
subjects:
  - {kind: ServiceAccount, name: {{ include "sawhorse.fullname" .root }}-{{ .service }}, namespace: {{ .root.Release.Namespace }}}
{{- if .leases }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "sawhorse.metadata" . | nindent 2 }}
rules:
  # A rule with names cannot allow create: the name is not known to the authorizer then.
  - {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
  - {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: {{ toJson .leases }}, verbs: [get, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "sawhorse.metadata" . | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ include "sawhorse.fullname" .root }}-{{ .service }}}
subjects:
  - {kind: ServiceAccount, name: {{ include "sawhorse.fullname" .root }}-{{ .service }}, namespace: {{ .root.Release.Namespace }}}
{{- end }}
{{- end -}}
