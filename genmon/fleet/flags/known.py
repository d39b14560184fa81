"""The names of SGLang's launch flags in 0.5.11 and 0.5.23, for when no installed SGLang can be read.

Source: the fields of `/server_info` of both versions, and the usage text of 0.5.11. The simulated server acts on a few
of them and ignores the others.
"""

from __future__ import annotations

from msgspec import Struct

from genmon.fleet.flags.strategies import STRATEGY_NEW, STRATEGY_OLD


class KnownFlags(Struct, frozen=True):
    """Flag names without their dashes; each value flag takes one value or more."""

    switches: frozenset[str]
    values: frozenset[str]


_SWITCHES = """
    abort-on-priority-when-disabled allow-auto-truncate checkpoint-engine-wait-weights-before-ready
    constrained-json-disable-any-whitespace debug-cuda-graph delete-ckpt-after-loading
    disable-chunked-prefix-cache disable-cuda-graph disable-cuda-graph-padding disable-custom-all-reduce
    disable-fast-image-processor disable-flashinfer-autotune disable-flashinfer-cutlass-moe-fp4-allgather
    disable-hybrid-swa-memory disable-outlines-disk-cache disable-overlap-schedule
    disable-priority-preemption disable-shared-experts-fusion disable-tokenizer-batch-decode
    disaggregation-decode-enable-offload-kvcache disaggregation-decode-enable-radix-cache
    enable-adaptive-dispatch-to-encoder enable-aiter-allreduce-fusion enable-attn-tp-input-scattered
    enable-broadcast-mm-inputs-process enable-cache-report enable-cudagraph-gc enable-custom-logit-processor
    enable-deterministic-inference enable-dp-attention enable-dp-attention-local-control-broadcast
    enable-dp-lm-head enable-draft-weights-cpu-backup enable-dynamic-batch-tokenizer enable-dynamic-chunking
    enable-elastic-expert-backup enable-eplb enable-flashinfer-allreduce-fusion enable-fp32-lm-head
    enable-fused-moe-sum-all-reduce enable-hierarchical-cache enable-hisparse enable-http2
    enable-layerwise-nvtx-marker enable-lmcache enable-memory-saver enable-metrics-for-all-schedulers
    enable-mfu-metrics enable-mis enable-mixed-chunk enable-mm-global-cache enable-mscclpp
    enable-multi-layer-eagle enable-nccl-nvls enable-p2p-check enable-pdmux
    enable-precise-embedding-interpolation enable-prefill-delayer enable-prefix-mm-cache
    enable-priority-scheduling enable-profile-cuda-graph enable-quant-communications
    enable-request-time-stats-logging enable-return-hidden-states enable-return-routed-experts
    enable-single-batch-overlap enable-ssl-refresh enable-streaming-session enable-symm-mem
    enable-tokenizer-batch-encode enable-torch-compile enable-torch-compile-debug-mode enable-torch-symm-mem
    enable-trace enable-two-batch-overlap enable-weights-cpu-backup encoder-only
    enforce-disable-flashinfer-allreduce-fusion enforce-shared-experts-fusion export-metrics-to-file
    flashinfer-mla-disable-ragged grpc-mode incremental-streaming-output is-embedding language-only
    log-requests lora-strict-loading lora-use-virtual-experts mm-enable-dp-encoder pre-warm-nccl
    quantize-and-serve remote-instance-weight-loader-start-seed-via-transfer-engine
    schedule-low-priority-values-first show-time-cost skip-server-warmup skip-tokenizer-init sleep-on-idle
    speculative-adaptive stream-response-default-include-usage strip-thinking-cache
    triton-attention-reduce-in-fp32 trust-remote-code use-ray weight-loader-disable-mmap
    weight-loader-prefetch-checkpoints
"""
_VALUES = """
    admin-api-key attention-backend attn-cp-size base-gpu-id batch-notify-size bucket-e2e-request-latency
    bucket-inter-token-latency bucket-time-to-first-token chat-template chunked-prefill-size
    completion-template constrained-json-whitespace-pattern cpu-offload-gb crash-dump-folder
    custom-weight-loader debug-tensor-dump-input-file debug-tensor-dump-layers
    debug-tensor-dump-output-folder decode-attention-backend decode-log-interval decrypted-config-file
    decrypted-draft-config-file deepep-config deepep-mode default-priority-value device
    disaggregation-bootstrap-port disaggregation-decode-polling-interval disaggregation-ib-device
    disaggregation-mode disaggregation-transfer-backend dist-init-addr dist-timeout dllm-algorithm
    dllm-algorithm-config download-dir dp-size dtype dynamic-batch-tokenizer-batch-size
    dynamic-batch-tokenizer-batch-timeout elastic-ep-backend enable-lora enable-lora-overlap-loading
    enable-multimodal encoder-transfer-backend encoder-urls engine-info-bootstrap-port ep-dispatch-algorithm
    ep-num-redundant-experts ep-size eplb-algorithm eplb-min-rebalancing-utilization-threshold
    eplb-rebalance-layers-per-chunk eplb-rebalance-num-iterations expert-distribution-recorder-buffer-size
    expert-distribution-recorder-mode experts-shared-outer-loras export-metrics-to-file-dir
    extra-metric-labels fastapi-root-path file-storage-path flashinfer-mxfp4-moe-precision forward-hooks
    fp4-gemm-runner-backend fp8-gemm-runner-backend gc-threshold gc-warning-threshold-secs
    generation-tokens-buckets gpu-id-step grammar-backend hf-chat-template-name hicache-io-backend
    hicache-mem-layout hicache-ratio hicache-size hicache-storage-backend
    hicache-storage-backend-extra-config hicache-storage-prefetch-policy hicache-write-policy
    hisparse-config host init-expert-location json-model-override-args kt-cpuinfer
    kt-max-deferred-experts-per-token kt-method kt-num-gpu-experts kt-threadpool-count kt-weight-path
    kv-cache-dtype kv-events-config limit-mm-data-per-request linear-attn-backend linear-attn-decode-backend
    linear-attn-prefill-backend load-balance-method load-format log-level log-level-http log-requests-format
    log-requests-level log-requests-target lora-backend lora-eviction-policy lora-paths lora-target-modules
    mamba-backend mamba-full-memory-ratio mamba-ssm-dtype mamba-track-interval max-loaded-loras
    max-lora-chunk-size max-lora-rank max-loras-per-batch max-mamba-cache-size max-prefill-tokens
    max-queued-requests max-total-tokens mm-attention-backend mm-process-config model-checksum model-impl
    model-loader-extra-config modelexpress-config modelopt-checkpoint-restore-path
    modelopt-checkpoint-save-path modelopt-export-path modelopt-quant moe-a2a-backend moe-dense-tp-size
    moe-dp-size moe-runner-backend mooncake-ib-device msprobe-dump-config nccl-port nnodes node-rank
    num-continuous-decode-steps num-reserved-decode-tokens numa-node offload-group-size offload-mode
    offload-num-in-group offload-prefetch-step otlp-traces-endpoint page-size pdmux-config-path
    pp-async-batch-depth pp-max-micro-batch-size pp-size preferred-sampling-params prefill-attention-backend
    prefill-delayer-forward-passes-buckets prefill-delayer-max-delay-passes
    prefill-delayer-token-usage-low-watermark prefill-delayer-wait-seconds-buckets prefill-max-requests
    priority-scheduling-preemption-threshold prompt-tokens-buckets quantization quantization-param-path
    radix-eviction-policy random-seed remote-instance-weight-loader-backend
    remote-instance-weight-loader-seed-instance-ip remote-instance-weight-loader-seed-instance-service-port
    remote-instance-weight-loader-send-weights-group-ports revision rl-on-policy-target rl-quant-profile
    sampling-backend sampling-defaults schedule-conservativeness schedule-policy scheduler-recv-interval
    sm-group-num soft-watchdog-timeout speculative-accept-threshold-acc speculative-accept-threshold-single
    speculative-adaptive-config speculative-attention-mode speculative-dflash-block-size
    speculative-draft-attention-backend speculative-draft-load-format speculative-draft-model-path
    speculative-draft-model-quantization speculative-draft-model-revision speculative-moe-a2a-backend
    speculative-moe-runner-backend speculative-ngram-capacity speculative-ngram-external-corpus-max-tokens
    speculative-ngram-external-corpus-path speculative-ngram-external-sam-budget
    speculative-ngram-match-type speculative-ngram-max-bfs-breadth speculative-ngram-max-trie-depth
    speculative-ngram-min-bfs-breadth speculative-token-map ssl-ca-certs ssl-certfile ssl-keyfile
    ssl-keyfile-password stream-interval swa-full-tokens-ratio tbo-token-distribution-threshold
    tokenizer-backend tokenizer-metrics-allowed-custom-labels tokenizer-metrics-custom-labels-header
    tokenizer-mode tokenizer-path tokenizer-worker-num tool-call-parser tool-server torch-compile-max-bs
    tp-size triton-attention-num-kv-splits triton-attention-split-tile-size
    warmups watchdog-timeout weight-loader-prefetch-num-threads
    weight-version
"""
_SWITCHES_OLD = """
    collect-tokens-histogram debug-tensor-dump-inject disable-piecewise-cuda-graph elastic-ep-rejoin
    enable-breakable-cuda-graph enable-expert-distribution-metrics enable-fused-qk-norm-rope
    enable-nan-detection enable-nsa-prefill-context-parallel enable-piecewise-cuda-graph
    enable-prefill-context-parallel enforce-piecewise-cuda-graph keep-mm-feature-on-device
    prefill-round-robin-balance record-nolora-graph speculative-skip-dp-mlp-sync stream-output
"""
_VALUES_OLD = """
    cuda-graph-bs cuda-graph-max-bs fp4-gemm-backend fp8-gemm-backend grpc-http-sidecar-port
    hybrid-kvcache-ratio nsa-decode-backend nsa-prefill-backend nsa-prefill-cp-mode
    piecewise-cuda-graph-compiler piecewise-cuda-graph-max-tokens piecewise-cuda-graph-tokens
    prefill-cp-mode speculative-dflash-draft-window-size torchao-config
"""
_SWITCHES_NEW = """
    disable-aiter-allreduce-fusion-in-decode disable-aiter-allreduce-fusion-in-prefill
    disable-attn-tp-gather disable-decode-cuda-graph disable-prefill-cuda-graph
    disaggregation-enable-kv-checksum dllm-fdfo enable-amd-monokernel enable-cp-decode-attn-tp
    enable-cp-tp-group-sharing enable-deepseek-v4-fp4-indexer enable-dense-mlp-attn-tp
    enable-dsa-cache-layer-split enable-encoder-swa-bounded-replay enable-flexkv enable-forward-pass-metrics
    enable-http-worker-reuseport enable-int8-mamba-checkpoint enable-kv-cache-sharding enable-layernorm-sp
    enable-linear-replayssm enable-linear-replayssm-spec enable-linker-mla-dedup
    enable-mamba-cache-stochastic-rounding enable-megamoe-for-layernorm-sp enable-nvidia-megakernel
    enable-page-major-kv-layout enable-paged-experts enable-pd-role-switch enable-prefill-cp
    enable-response-store enable-return-aux-hidden-states enable-return-indexer-topk enable-scattered-sconv
    enable-session-radix-cache enable-shared-experts-attn-tp enable-strict-thinking enable-tf32-matmul
    enable-tp-lm-head-all-to-all enable-unified-cache-external-linker enable-unified-memory
    enable-w4a4-mxfp4-megamoe enable-waterfill enable-watermark language-model-only mlx-enable-sampling
    prefill-only-disable-kv-cache return-input-ids return-output-ids smg-grpc-mode
    speculative-dspark-align-verify-tokens-to-graph-tier speculative-use-block-verification
    speculative-use-rejection-sampling trust-mm-content-hashes trust-request-chat-template
    uses-mamba-radix-cache watermark-default-enabled watermark-enforce-all
    weight-loader-drop-cache-after-load
"""
_VALUES_NEW = """
    allowed-media-domains asr-max-buffer-seconds asr-max-concurrent-sessions attn-dp-size
    aux-hidden-state-capture bf16-gemm-backend boundary-reduction c128-page-size
    constrained-json-max-whitespace-cnt cp-strategy cuda-graph-backend-decode cuda-graph-backend-prefill
    cuda-graph-bs-decode cuda-graph-bs-prefill cuda-graph-config cuda-graph-max-bs-decode
    cuda-graph-max-bs-prefill cuda-graph-max-seq-len-prefill cuda-graph-prefill-max-context dcp-comm-backend
    dcp-replicate-q-proj dcp-size decoupled-spec-bind-endpoint decoupled-spec-connect-endpoints
    decoupled-spec-rank decoupled-spec-role deepep-dispatcher-output-dtype deepep-v2-mode
    default-chat-template-kwargs detokenizer-worker-num disaggregation-decode-allocation-policy
    disaggregation-decode-extra-slots disaggregation-decode-host-receive-threshold
    disaggregation-decode-retraction-backup dsa-decode-backend dsa-paged-mqa-logits-backend
    dsa-prefill-backend dsa-topk-backend dsa-triton-union dsv4-attn-backend dsv4-prefill-backend dwdp-size
    elastic-ep-initial-size elastic-ep-scale-timeout enable-decoder-swa-bounded-replay
    enable-dsa-fused-indexer enable-fused-qk-norm-rope enable-lean-attention encoder-bootstrap-port
    encoder-register-urls ep-join-mode ep-join-rank-offset expert-balancedness-report-mode
    flashinfer-a2a-dispatch-type flashinfer-allreduce-fusion-backend flashinfer-autotune-skip-ops
    flexkv-config-file forward-pass-metrics-ipc-name forward-pass-metrics-worker-id fuseep-mode
    gated-launch-port grpc-port grpc-response-timeout-secs grpc-worker-threads hicache-host-memory-fraction
    hicache-host-memory-mode hicache-storage-prefetch-retry-max-attempts
    hicache-storage-prefetch-retry-poll-interval http2-initial-connection-window-size
    http2-max-concurrent-streams image-processor-backend int8-mamba-ckpt-size kv-canary kv-canary-real-data
    kv-canary-sweep-interval linear-attn-verify-backend linear-replayssm-cache-len lmcache-config-file
    load-publish-endpoint load-snapshot-publish-interval lora-drain-wait-threshold mamba-cache-philox-rounds
    mamba-max-states-per-path max-ep-size media-url-max-file-size-mb min-free-slots-delay
    mm-feature-transport mm-global-cache-backend mm-io-worker-num mm-preprocess-cache-size-mb
    mm-processor-worker-num model-config-parser optimistic-prefill-attempts otlp-service-name
    paged-experts-num-resident ple-offload-backend ple-offload-dir ple-offload-embedding
    prefill-decode-interval prefill-decode-interval-min-bs prefill-delayer-max-delay-ms
    prefill-delayer-queue-min-ratio prefill-kv-cache-dequant-dtype qsa-indexer-dtype radix-cache-backend
    radix-eviction-policy-config retraction-policy return-aux-hidden-state-layer-ids
    return-hidden-states-mode sampling-mask-max-tokens shared-experts-tp-size sidecar sidecar-args
    smg-http-sidecar-port spec-trace-dir speculative-boundary-reduction
    speculative-domino-candidate-pool-size speculative-draft-kv-cache-dtype speculative-draft-sink-size
    speculative-draft-window-size speculative-dsa-topk-backend speculative-dspark-block-size
    speculative-dspark-confidence-sts-path speculative-dspark-sps-table-path
    speculative-enable-w4a4-mxfp4-megamoe startup-weight-load-mode stat-loggers swa-prefix-tails
    trace-modules unified-cache-external-linker-backend unified-cache-external-linker-config uno-lora-path
    watermark-config watermark-context-window watermark-key watermark-key-b watermark-max-probability
    watermark-mixing-probability weight-cache-mode weight-cache-socket weight-cache-timeout
"""
_ALIASES = """
    tp dp ep pp tensor-parallel-size data-parallel-size expert-parallel-size pipeline-parallel-size
    attention-context-parallel-size moe-data-parallel-size speculative-draft-model config
"""


_ACTED_ON = """
    model-path model served-model-name port context-length reasoning-parser api-key mem-fraction-static
    max-running-requests enable-metrics disable-radix-cache uvicorn-access-log-exclude-prefixes
    speculative-algorithm speculative-num-steps speculative-eagle-topk speculative-num-draft-tokens
"""
_TABLES = {"0.5.11": (False, STRATEGY_OLD), "0.5.23": (True, STRATEGY_NEW)}


def table(version: str) -> frozenset[str] | None:
    """All launch flags of a version; None for one that has no table."""
    if version not in _TABLES:
        return None
    new, strategy = _TABLES[version]
    ignored = ignored_flags(new=new)
    return ignored.switches | ignored.values | frozenset(_ACTED_ON.split()) | {strategy}


def ignored_flags(*, new: bool) -> KnownFlags:
    """What 0.5.23 (`new`) or 0.5.11 accepts, and the simulated server does not act on."""
    switches, values = (_SWITCHES_NEW, _VALUES_NEW) if new else (_SWITCHES_OLD, _VALUES_OLD)
    return KnownFlags(frozenset(f"{_SWITCHES} {switches}".split()), frozenset(f"{_VALUES} {values} {_ALIASES}".split()))
