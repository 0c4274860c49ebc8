#include "lockstep/runtime/collectives/gradient_compression.h"

#include <c10/util/StringUtil.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

CastCompression::CastCompression(at::ScalarType dtype) : dtype_(dtype) {
  if (dtype != at::kHalf && dtype != at::kBFloat16) {
    throw InvalidArgument(
        c10::str("[CastCompression] expected float16 or bfloat16, but got ", c10::toString(dtype)));
  }
}

std::string CastCompression::name() const {
  return dtype_ == at::kHalf ? "float16" : "bfloat16";
}

at::Tensor CastCompression::compress(const at::Tensor& bucket) {
  return bucket.to(dtype_);
}

void CastCompression::decompress(const at::Tensor& sum, at::Tensor& bucket) {
  bucket.copy_(sum);
}

std::shared_ptr<GradientCompression> make_gradient_compression(const std::string& name) {
  if (name == "none") return nullptr;
  if (name == "float16") return std::make_shared<CastCompression>(at::kHalf);
  if (name == "bfloat16") return std::make_shared<CastCompression>(at::kBFloat16);
  throw InvalidArgument("[gradient_compression] expected none, float16 or bfloat16, but got '" + name + "'");
}

}  // namespace lockstep
