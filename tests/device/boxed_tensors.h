#pragma once

// Arguments and results of operators, for fallbacks of devices that tests make of the CPU.

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <optional>
#include <set>
#include <string>

namespace lockstep {

/// Returns `value` with `function(tensor)` in place of each tensor.
template <typename Function>
c10::IValue with_tensors(const c10::IValue& value, const Function& function) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(function(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector())
      tensors.push_back(tensor.defined() ? function(tensor) : tensor);
    return tensors;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      tensors.push_back(tensor && tensor->defined() ? std::optional(function(*tensor)) : tensor);
    return tensors;
  }
  return value;
}

template <typename Function>
void for_each_tensor(const c10::IValue& value, const Function& function) {
  with_tensors(value, [&](const at::Tensor& tensor) {
    function(tensor);
    return tensor;
  });
}

/// Operators whose results, or results' shapes, the host must know.
inline bool waits_for_device(const std::string& name, const torch::jit::Stack& arguments) {
  static const std::set<std::string> names{
      "aten::_local_scalar_dense", "aten::nonzero",  "aten::masked_select", "aten::_unique2",
      "aten::unique_consecutive",  "aten::bincount", "aten::equal"};
  bool waits = names.contains(name);
  if (name == "aten::index") {
    for_each_tensor(arguments.at(1),
                    [&](const at::Tensor& index) { waits = waits || index.scalar_type() == at::kBool; });
  }
  return waits;
}

}  // namespace lockstep
