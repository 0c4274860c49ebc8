#include "lockstep/training/formats/state_file.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <cmath>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/tests/fuzz/fuzz.h"
#include "lockstep/tests/support/test_files.h"

// The only fuzz program that uses LibTorch. LibTorch is not instrumented, so this program checks for itself
// whether LibTorch would read out of bounds.

namespace lockstep::fuzz {
namespace {

/// Expects that all memory the tensor can reach is in its storage.
void expect_within_storage(const torch::Tensor& tensor) {
  expect(!tensor.requires_grad() && tensor.device().is_cpu(), "a plain tensor on the CPU");
  if (tensor.numel() == 0) return;
  int64_t last = tensor.storage_offset();
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    expect(tensor.stride(i) >= 0, "no negative stride");
    last += (tensor.size(i) - 1) * tensor.stride(i);
  }
  const auto end = static_cast<size_t>(last + 1) * tensor.element_size();
  expect(tensor.storage_offset() >= 0 && end <= tensor.storage().nbytes(), "a tensor within its storage");
}

void expect_sound(const StateValue& value, size_t input_bytes) {
  if (const auto* tensor = value.get_if<torch::Tensor>()) {
    expect(tensor->storage().nbytes() <= input_bytes, "storages as large as the file at the most");
    expect_within_storage(*tensor);
  } else if (const auto* list = value.get_if<StateValue::List>()) {
    for (const auto& item : *list) expect_sound(item, input_bytes);
  } else if (const auto* tuple = value.get_if<StateValue::Tuple>()) {
    for (const auto& item : tuple->items) expect_sound(item, input_bytes);
  } else if (const auto* dict = value.get_if<StateValue::Dict>()) {
    for (const auto& entry : dict->entries) expect_sound(entry.value, input_bytes);
  }
}

/// NaNs with the same bits compare equal.
bool is_same(const StateValue& one, const StateValue& other);

bool are_same(const std::vector<StateValue>& one, const std::vector<StateValue>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(), is_same);
}

bool is_same(const StateValue& one, const StateValue& other) {
  if (one.data().index() != other.data().index()) return false;
  if (const auto* tensor = one.get_if<torch::Tensor>()) {
    const auto& second = *other.get_if<torch::Tensor>();
    if (tensor->scalar_type() != second.scalar_type() || tensor->sizes() != second.sizes()) return false;
    // Copies the tensor: one element is contiguous whatever its stride, but some strides prevent a byte view.
    const auto bytes_of = [](const torch::Tensor& t) {
      return t.flatten().clone(torch::MemoryFormat::Contiguous).view(torch::kUInt8);
    };
    return at::equal(bytes_of(*tensor), bytes_of(second));
  }
  if (const auto* list = one.get_if<StateValue::List>())
    return are_same(*list, *other.get_if<StateValue::List>());
  if (const auto* tuple = one.get_if<StateValue::Tuple>())
    return are_same(tuple->items, other.get_if<StateValue::Tuple>()->items);
  if (const auto* dict = one.get_if<StateValue::Dict>()) {
    const auto& second = other.get_if<StateValue::Dict>()->entries;
    return std::equal(
        dict->entries.begin(), dict->entries.end(), second.begin(), second.end(),
        [](const auto& a, const auto& b) { return a.key == b.key && is_same(a.value, b.value); });
  }
  if (const auto* number = one.get_if<double>()) {
    const double second = *other.get_if<double>();
    return *number == second || (std::isnan(*number) && std::isnan(second));
  }
  if (const auto* integer = one.get_if<int64_t>()) return *integer == *other.get_if<int64_t>();
  if (const auto* truth = one.get_if<bool>()) return *truth == *other.get_if<bool>();
  if (const auto* text = one.get_if<std::string>()) return *text == *other.get_if<std::string>();
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile file(std::span(data, size));
  const auto state =
      accepted<CheckpointError>([&] { return load_state_file(file.path()); }, expect_plain_line);
  if (!state) return 0;
  expect_sound(*state, size);
  static const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/state.pt";
  save_state_file(path, *state);
  expect(is_same(load_state_file(path), *state), "the same state out of what was written of it");
  return 0;
}

}  // namespace lockstep::fuzz
