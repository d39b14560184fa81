#!/bin/bash
# On a machine with the package registries: make what travels to the machine with the GPU.
#   bash prepare.sh ARCHIVES WORK PROMPTS      (PROMPTS: see prompts.py; needs pip, git, xz, strip; 350 MB of downloads)
# Python 3.12, torch 2.11.0+cu130 and sm90 are what is there; 58 MB of archives come out.
set -e
HERE=$(cd "$(dirname "$0")" && pwd); DEST=$(realpath -m "$1"); W=$(realpath -m "$2"); PROMPTS=$(realpath "$3")
mkdir -p "$DEST" "$W"/{sglang,genmon,site,tokenizers,prompts}
fetch() { # FOLDER PACKAGE==VERSION...
  local to=$1; shift
  local platforms; platforms=$(for n in 39 35 34 31 28 27 26 24 17; do printf -- '--platform manylinux_2_%s_x86_64 ' $n; done)
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp $platforms \
    --platform manylinux2014_x86_64 --platform manylinux1_x86_64 -d "$to" "$@"
}
pack() { find "$2" -name __pycache__ -prune -exec rm -rf {} +; tar cf - -C "$2" . | xz -6 -T0 > "$DEST/$1.txz"; }

# 1. SGLang 0.5.11 and what the machine lacks for it. Its kernels for sm90 alone: FlashAttention 3 is 1 GB, so the
#    attention backend is Triton's.
fetch "$W/sglang" sglang==0.5.11 sglang-kernel==0.4.2 flashinfer-python==0.6.8.post1 transformers==5.6.0 tokenizers==0.22.2 \
  apache-tvm-ffi==0.1.15.post2 fastapi==0.128.0 starlette==0.50.0 uvicorn==0.40.0 pydantic==2.12.5 pydantic-core==2.41.5 \
  annotated-types==0.8.0 typing-inspection==0.4.5 python-multipart==0.0.34 orjson==3.13.0 pyzmq==27.3.0 msgspec==0.23.0 \
  pybase64==1.5.1 setproctitle==1.3.8 partial-json-parser==0.2.1.1.post7 interegular==0.3.3 openai==2.6.1 \
  openai-harmony==0.0.4 jiter==0.19.0 distro==1.9.0 sniffio==1.3.1 compressed-tensors==0.20.1 gguf==0.19.0 dill==0.4.1 \
  loguru==0.7.3 jsonschema==4.26.0 jsonschema-specifications==2025.9.1 referencing==0.37.0 rpds-py==2026.9.1 cffi==2.1.1 \
  soundfile==0.14.0
cd "$W/site"
for wheel in "$W"/sglang/*.whl; do unzip -q -o "$wheel" -d .; done
rm -rf deep_gemm lib lib64 include tools _mscclpp* sgl_kernel/flash_ops.abi3.so sgl_kernel/flashmla_ops.abi3.so \
  sgl_kernel/sm100 sglang/jit_kernel/tests sglang/jit_kernel/benchmark sglang/test
mkdir -p IPython _libs
: > IPython/__init__.py
printf 'def HTML(x=None, *a, **k):\n    return x\ndef display(*a, **k):\n    pass\n' > IPython/display.py
cp -L "$(ldconfig -p | awk '/libnuma.so.1 .*x86-64/{print $NF; exit}')" _libs/libnuma.so.1 # sgl_kernel links it
# Some compilers reject the trailing decltype of this kernel: the same function, with a deduced return type.
python3 - <<'P'
path = "sglang/jit_kernel/csrc/elementwise/activation.cuh"
text = open(path).read()
head = "(const std::string& type)\n      -> decltype(activation_kernel<ActivationKind::kSiLU, kFilterExpert>) {"
tail = "type);\n    }\n    return nullptr;"
assert head in text and tail in text
text = text.replace(head, "(const std::string& type) {")
text = text.replace(tail, tail.replace("nullptr", "activation_kernel<ActivationKind::kSiLU, kFilterExpert>"))
open(path, "w").write(text)
P
pack site "$W/site"

# 2. What genmon needs beyond what is there (aiohttp, rich, yaml, httpx), in a folder of its own.
fetch "$W/genmon" duckdb==2.0.1 zstandard==0.25.0 httpx-aiohttp==0.1.12 openai==2.6.1 jiter==0.19.0 distro==1.9.0 \
  sniffio==1.3.1 msgspec==0.23.0 pydantic==2.12.5 pydantic-core==2.41.5 annotated-types==0.8.0 typing-inspection==0.4.5 \
  nvidia-ml-py==13.615.71 click==8.5.1
rm -rf "$W/gsite"
for wheel in "$W"/genmon/*.whl; do unzip -q -o "$wheel" -d "$W/gsite"; done
rm -f "$W"/gsite/zstandard/_cffi*.so
find "$W/gsite" -name '*.so' -exec strip {} +
pack gsite "$W/gsite"

# 3. The model's folder (no weights) and the prompts.
python3 -m pip install -q --no-deps --no-compile --upgrade --target "$W/tokenizers" tokenizers==0.22.2
PYTHONPATH=$W/tokenizers python3 "$HERE/make_model.py" "$W/model"
python3 "$HERE/prompts.py" "$PROMPTS" "$W/prompts"
pack model "$W/model"; pack prompts "$W/prompts"

# 4. genmon as it is committed, and how to begin.
git -C "$(git -C "$HERE" rev-parse --show-toplevel)" archive HEAD genmon benchmarks pyproject.toml | xz > "$DEST/genmon.txz"
cp "$HERE/go.sh" "$DEST/"
ls -la "$DEST"
