// Kernels that put the collectives around the operations of layers whose weights are marked. They are those
// of a dispatch key that no backend uses and that is enabled in the threads of replicas; see
// ReplicaRandomGuard.

#include <ATen/ops/addmm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/t.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <optional>
#include <utility>

#include "lockstep/strategies/parallel/internal/parallelized_layer.h"

namespace lockstep {
namespace {

constexpr c10::DispatchKey kLayerKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

c10::DispatchKeySet below_key(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kLayerKey);
}

/// The mark of a weight's transpose: torch::nn::Linear multiplies by weight.t().
class TransposedMark final : public c10::BackendMeta {
 public:
  explicit TransposedMark(std::shared_ptr<const ParallelizedLayer> layer) : layer(std::move(layer)) {}
  const std::shared_ptr<const ParallelizedLayer> layer;
};

const ParallelizedLayer* layer_of_transpose(const at::Tensor& matrix) {
  auto* meta = matrix.defined() ? matrix.unsafeGetTensorImpl()->get_backend_meta() : nullptr;
  if (meta == nullptr) return nullptr;
  const auto* mark = dynamic_cast<const TransposedMark*>(meta);
  return mark != nullptr ? mark->layer.get() : nullptr;
}

/// Returns the output of a linear layer without its bias. `multiply` multiplies the operation's input by the
/// weight.
template <typename Multiply>
at::Tensor linear_without_bias(const ParallelizedLayer& layer, const at::Tensor& input,
                               const Multiply& multiply) {
  const at::Tensor output = layer.linear_output(multiply(layer.linear_input(input)));
  layer.note(input, output, layer.returns_part_of_linear());
  return output;
}

at::Tensor with_bias(const at::Tensor& output, const at::Tensor& bias) {
  return bias.defined() ? output + bias.to(output.scalar_type()) : output;
}

/// Whether the operation may add the bias itself: otherwise it comes after the collective. Those who observe
/// get outputs without it.
bool adds_bias_at_once(const ParallelizedLayer& layer) {
  return (!layer.cut || layer.returns_part_of_linear()) && !layer.trace->observe;
}

at::Tensor t_of_weight(c10::DispatchKeySet keys, const at::Tensor& self) {
  at::Tensor transposed = at::_ops::t::redispatch(below_key(keys), self);
  auto* meta = self.unsafeGetTensorImpl()->get_backend_meta();
  if (meta == nullptr) return transposed;
  if (const auto* mark = dynamic_cast<const LayerMark*>(meta))
    transposed.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<TransposedMark>(mark->layer()));
  return transposed;
}

at::Tensor mm_of_layer(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& mat2) {
  const auto* layer = layer_of_transpose(mat2);
  if (layer == nullptr) return at::_ops::mm::redispatch(below_key(keys), self, mat2);
  const c10::impl::ExcludeDispatchKeyGuard below(kLayerKey);
  return linear_without_bias(*layer, self, [&](const at::Tensor& input) { return at::mm(input, mat2); });
}

at::Tensor matmul_of_layer(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& other) {
  const auto* layer = layer_of_transpose(other);
  if (layer == nullptr) return at::_ops::matmul::redispatch(below_key(keys), self, other);
  const c10::impl::ExcludeDispatchKeyGuard below(kLayerKey);
  return linear_without_bias(*layer, self, [&](const at::Tensor& input) { return at::matmul(input, other); });
}

at::Tensor addmm_of_layer(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& mat1,
                          const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha) {
  const auto* layer = layer_of_transpose(mat2);
  if (layer == nullptr) return at::_ops::addmm::redispatch(below_key(keys), self, mat1, mat2, beta, alpha);
  const c10::impl::ExcludeDispatchKeyGuard below(kLayerKey);
  if (adds_bias_at_once(*layer)) {
    at::Tensor output = at::addmm(self, layer->linear_input(mat1), mat2, beta, alpha);
    layer->note(mat1, output, layer->returns_part_of_linear());
    return output;
  }
  const at::Tensor product =
      linear_without_bias(*layer, mat1, [&](const at::Tensor& input) { return at::mm(input, mat2); });
  const bool is_plain = beta.toDouble() == 1 && alpha.toDouble() == 1;
  return is_plain ? with_bias(product, self) : with_bias(product * alpha, self * beta);
}

at::Tensor linear_of_layer(c10::DispatchKeySet keys, const at::Tensor& input, const at::Tensor& weight,
                           const std::optional<at::Tensor>& bias) {
  const auto* layer = parallelized_layer_of(weight);
  if (layer == nullptr) return at::_ops::linear::redispatch(below_key(keys), input, weight, bias);
  const c10::impl::ExcludeDispatchKeyGuard below(kLayerKey);
  if (adds_bias_at_once(*layer)) {
    at::Tensor output = at::linear(layer->linear_input(input), weight, bias);
    layer->note(input, output, layer->returns_part_of_linear());
    return output;
  }
  return with_bias(
      linear_without_bias(*layer, input, [&](const at::Tensor& own) { return at::linear(own, weight); }),
      bias.value_or(at::Tensor()));
}

at::Tensor embedding_of_layer(c10::DispatchKeySet keys, const at::Tensor& weight, const at::Tensor& indices,
                              c10::SymInt padding_idx, bool scale_grad_by_freq, bool sparse) {
  const auto* layer = parallelized_layer_of(weight);
  if (layer == nullptr || scale_grad_by_freq || sparse) {
    return at::_ops::embedding::redispatch(below_key(keys), weight, indices, std::move(padding_idx),
                                           scale_grad_by_freq, sparse);
  }
  const c10::impl::ExcludeDispatchKeyGuard below(kLayerKey);
  at::Tensor output = layer->embedding(weight, indices, padding_idx.expect_int());
  layer->note(indices, output, layer->returns_part_of_embedding());
  return output;
}

at::Tensor layer_norm_of_layer(c10::DispatchKeySet keys, const at::Tensor& input,
                               c10::SymIntArrayRef normalized_shape, const std::optional<at::Tensor>& weight,
                               const std::optional<at::Tensor>& bias, double eps, bool cudnn_enable) {
  const auto* layer = weight ? parallelized_layer_of(*weight) : nullptr;
  if (layer != nullptr) layer->check_norm(input);
  at::Tensor output = at::_ops::layer_norm::redispatch(below_key(keys), input, normalized_shape, weight, bias,
                                                       eps, cudnn_enable);
  if (layer != nullptr) layer->note(input, output, /*is_part=*/false);
  return output;
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("t", TORCH_FN(t_of_weight));
  library.impl("mm", TORCH_FN(mm_of_layer));
  library.impl("matmul", TORCH_FN(matmul_of_layer));
  library.impl("addmm", TORCH_FN(addmm_of_layer));
  library.impl("linear", TORCH_FN(linear_of_layer));
  library.impl("embedding", TORCH_FN(embedding_of_layer));
  library.impl("layer_norm", TORCH_FN(layer_norm_of_layer));
}

}  // namespace

void watch_weights() {
  c10::impl::tls_set_dispatch_key_included(kLayerKey, true);
}

}  // namespace lockstep
