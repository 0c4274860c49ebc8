#include "lockstep/training/state/internal/divided_tensor.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <utility>

namespace lockstep {
namespace {

struct PiecesMark final : c10::BackendMeta {
  explicit PiecesMark(std::vector<TensorPiece> pieces) : pieces(std::move(pieces)) {}
  const std::vector<TensorPiece> pieces;
};

}  // namespace

torch::Tensor divided_tensor(const torch::Tensor& like, std::vector<TensorPiece> pieces) {
  auto tensor = at::empty_strided(like.sizes(), like.strides(),
                                  torch::TensorOptions(like.scalar_type()).device(torch::kMeta));
  tensor.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<PiecesMark>(std::move(pieces)));
  return tensor;
}

const std::vector<TensorPiece>* pieces_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const auto* mark = dynamic_cast<const PiecesMark*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
  return mark != nullptr ? &mark->pieces : nullptr;
}

}  // namespace lockstep
