#include "lockstep/training/planning/internal/operator_costs.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

double numel_of(const std::vector<int64_t>& shape) {
  double numel = 1;
  for (const int64_t size : shape) numel *= static_cast<double>(size);
  return numel;
}

double size_at(const std::vector<int64_t>& shape, size_t dimension) {
  return dimension < shape.size() ? static_cast<double>(shape[dimension]) : 1;
}

/// Of [.., n, k] times a matrix with `columns` columns.
double product(const std::vector<int64_t>& left, double columns) {
  return 2 * numel_of(left) * columns;
}

/// Each element of the convolution's output, or if it is transposed of its input, meets each weight of its
/// channel.
double convolution(const std::vector<int64_t>& met, const std::vector<int64_t>& weight) {
  return weight.empty() || weight[0] == 0 ? 0 : 2 * numel_of(met) * numel_of(weight) / size_at(weight, 0);
}

/// Of one product between all queries and all keys.
double attention(const std::vector<int64_t>& queries, const std::vector<int64_t>& keys) {
  return 2 * numel_of(queries) * size_at(keys, 2);
}

enum class Formula : uint8_t {
  kProduct,
  kAddedProduct,
  kVector,
  kConvolution,
  kConvolutionBackward,
  kAttention,
  kAttentionBackward
};

struct KnownOperator {
  std::string_view name;
  Formula formula;
};

constexpr std::array kOperators{
    KnownOperator{"aten::mm", Formula::kProduct},
    KnownOperator{"aten::bmm", Formula::kProduct},
    KnownOperator{"aten::addmm", Formula::kAddedProduct},
    KnownOperator{"aten::baddbmm", Formula::kAddedProduct},
    KnownOperator{"aten::mv", Formula::kVector},
    KnownOperator{"aten::dot", Formula::kVector},
    KnownOperator{"aten::convolution", Formula::kConvolution},
    KnownOperator{"aten::convolution_backward", Formula::kConvolutionBackward},
    KnownOperator{"aten::_scaled_dot_product_flash_attention_for_cpu", Formula::kAttention},
    KnownOperator{"aten::_scaled_dot_product_flash_attention_for_cpu_backward", Formula::kAttentionBackward}};

const KnownOperator* known_operator(std::string_view name) {
  const auto* found =
      std::find_if(kOperators.begin(), kOperators.end(), [&](const auto& one) { return one.name == name; });
  return found == kOperators.end() ? nullptr : found;
}

double flops_of_convolution(c10::ArrayRef<c10::IValue> arguments, const Shapes& inputs,
                            const Shapes& results) {
  constexpr size_t kTransposed = 6;
  if (inputs.size() < 2 || results.empty() || arguments.size() <= kTransposed) return 0;
  const bool is_transposed = arguments[kTransposed].toBool();
  return convolution(is_transposed ? inputs[0] : results[0], inputs[1]);
}

double flops_of_convolution_backward(c10::ArrayRef<c10::IValue> arguments, const Shapes& inputs) {
  constexpr size_t kTransposed = 7, kOutputMask = 10;
  if (inputs.size() < 3 || arguments.size() <= kOutputMask) return 0;
  const bool is_transposed = arguments[kTransposed].toBool();
  const auto mask = arguments[kOutputMask].toBoolList();
  const double once = convolution(is_transposed ? inputs[1] : inputs[0], inputs[2]);
  return once * ((mask.get(0) ? 1 : 0) + (mask.get(1) ? 1 : 0));
}

}  // namespace

bool has_known_flops(std::string_view name) {
  return known_operator(name) != nullptr;
}

double flops_of(std::string_view name, c10::ArrayRef<c10::IValue> arguments, const Shapes& inputs,
                const Shapes& results) {
  const auto* known = known_operator(name);
  if (known == nullptr) return 0;
  switch (known->formula) {
    case Formula::kProduct:
      return inputs.size() < 2 || inputs[1].empty()
                 ? 0
                 : product(inputs[0], static_cast<double>(inputs[1].back()));
    case Formula::kAddedProduct:
      return inputs.size() < 3 || inputs[2].empty()
                 ? 0
                 : product(inputs[1], static_cast<double>(inputs[2].back()));
    case Formula::kVector:
      return inputs.empty() ? 0 : 2 * numel_of(inputs[0]);
    case Formula::kConvolution:
      return flops_of_convolution(arguments, inputs, results);
    case Formula::kConvolutionBackward:
      return flops_of_convolution_backward(arguments, inputs);
    // Queries with keys, and weights with values; backward has five such products.
    case Formula::kAttention:
      return inputs.size() < 2 ? 0 : 2 * attention(inputs[0], inputs[1]);
    case Formula::kAttentionBackward:
      return inputs.size() < 3 ? 0 : 5 * attention(inputs[1], inputs[2]);
  }
  return 0;
}

}  // namespace lockstep
