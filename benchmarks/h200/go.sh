#!/bin/bash
# On the machine with the GPU: bash go.sh ARCHIVES PART...   parts: unpack sampler and those of session.py
# ARCHIVES holds what prepare.sh made; results go to $OUT (a folder, default ./out).
S=$(realpath "$1"); shift
B=${BENCH:-/opt/bench}; export OUT=${OUT:-$PWD/out} PYTHONUNBUFFERED=1; mkdir -p "$OUT" $B
TORCH=$(command -v python3); export TORCH_PYTHON=${TORCH_PYTHON:-$TORCH}
NVCC=$(readlink -f "$(command -v nvcc)"); CUDA=$(dirname "$(dirname "$NVCC")")
if [ -n "$NVCC" ] && [ ! -e "$CUDA/lib64/libcudart.so" ]; then   # a pip-installed toolkit has another layout
  mkdir -p $B/cuda/lib64; for d in bin include nvvm; do ln -sfn "$CUDA/$d" $B/cuda/$d; done
  ln -sf "$(find "$CUDA" "$($TORCH -c 'import sys; print(sys.prefix)')" /usr -name 'libcudart.so*' 2>/dev/null | head -1)" $B/cuda/lib64/libcudart.so
  CUDA=$B/cuda
fi
export CUDA_HOME=$CUDA LD_LIBRARY_PATH=$B/site/_libs:$LD_LIBRARY_PATH
export SGLANG_SITE=${SGLANG_SITE-$B/site} PYTHONPATH=$B/genmon:$B/gsite
cd $B
for part in "$@"; do
  echo "== $part $(date +%T)"
  case $part in
  unpack)
    for each in site gsite model genmon prompts; do
      [ -e "$S/$each.txz" ] && { mkdir -p $B/$each; $TORCH -c "import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter='fully_trusted')" "$S/$each.txz" $B/$each & }
    done; wait
    cp $B/genmon/benchmarks/h200/*.toml $B/
    $TORCH --version; nvcc --version | tail -1; uname -r; nproc; nvidia-smi -L | sed 's/UUID: [^)]*/UUID: zeroed/' ;;
  jit) (cd /tmp && PYTHONPATH=$B/site $TORCH $B/genmon/benchmarks/h200/prejit.py > "$OUT/jit.log" 2>&1) & JIT=$! ;;
  sampler) $TORCH -m benchmarks.h200.sampler "$OUT/sampler.json" "$TORCH_PYTHON"; tail -c 1500 "$OUT/sampler.json" ;;
  wait) wait $JIT; cut -c1-300 "$OUT/jit.log" ;;
  check) $TORCH -m genmon check mtp-off.toml; $TORCH -m genmon check mtp-on.toml ;;
  sweep) timeout -s INT "${SWEEP_S:-600}" $TORCH -m genmon sweep mtp-on.toml --concurrency "${LEVELS:-1,4,8,16,32,64}" \
      --seconds "${POINT_S:-18}" --json > "$OUT/sweep.json"; cp runs/mtp-on/sweep/*.json "$OUT/" 2>/dev/null
    for each in runs/mtp-on/sweep/servers/logs/*; do tail -c 60000 "$each" > "$OUT/sweep-$(basename "$each")"; done ;;
  keep) (cd "$HOME" && tar cJf "$OUT/caches.txz" $(ls -d .triton/cache .cache/tvm-ffi 2>/dev/null)) ;;
  caches) $TORCH -c "import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter='fully_trusted')" "$S/caches.txz" "$HOME" ;;
  *) $TORCH -m benchmarks.h200.session "$OUT" "$part" ;;
  esac
  rc=$?; echo "== $part exit $rc $(date +%T)"
  [ $rc != 0 ] && [ "$part" != check ] && break
done
cd "$OUT" && for d in */; do d=${d%/}; [ -d "$d" ] && tar czf "$d.tgz" "$d" && rm -rf "$d"; done; ls -la "$OUT"
