#include "lockstep/training/formats/internal/pickle_tree.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"

namespace lockstep {
namespace {

/// Bytes that repeated values may take for each byte of the pickle: two bytes can repeat a long string.
constexpr size_t kRepeatedBytesPerByte = 64;
constexpr size_t kFewRepeatedBytes = size_t{1} << 16;
constexpr size_t kMostRepeatedBytes = size_t{64} << 20;

/// Returns the bytes that another copy of the value takes, without its slot in its container and the contents
/// of its own slots.
struct BytesOfCopy {
  template <typename Small>
  size_t operator()(const Small&) const {
    return 0;
  }
  size_t operator()(const std::string& text) const { return text.size(); }
  size_t operator()(const PickledList& list) const { return sizeof(PickleValue) * list.items.size(); }
  size_t operator()(const PickledTuple& tuple) const { return sizeof(PickleValue) * tuple.items.size(); }
  size_t operator()(const PickledDict& dict) const {
    return sizeof(PickleValue::Entry) * dict.entries.size();
  }
  size_t operator()(const std::unique_ptr<PickledTensor>& tensor) const {
    return sizeof(PickledTensor) + tensor->storage.size() + 2 * sizeof(int64_t) * tensor->shape.size();
  }
};

class TreeMaker {
 public:
  TreeMaker(const std::vector<PickleNode>& nodes, size_t budget, const std::string& file)
      : nodes_(nodes), is_in_tree_(nodes.size()), budget_(budget), file_(file) {}

  PickleValue tree_of(NodeIndex index, size_t depth) {
    if (depth == kMaxNesting)
      fail("values at most " + std::to_string(kMaxNesting) + " deep inside each other", "deeper ones");
    pay_for(index);
    return std::visit([&](const auto& node) { return value_of(node, depth); }, nodes_[index]);
  }

 private:
  [[noreturn]] void fail(const std::string& expected, const std::string& actual) const {
    throw CheckpointError(file_, "data.pkl", expected, actual);
  }

  /// The pickle's own bytes pay for the first copy of each value, so that a pickle without repetitions is
  /// always read, however small its values are.
  void pay_for(NodeIndex index) {
    if (!is_in_tree_[index]) {
      is_in_tree_[index] = true;
      return;
    }
    const size_t bytes = std::visit(BytesOfCopy{}, nodes_[index]);
    if (bytes > budget_) fail("values that are not repeated all over", "too many of them");
    budget_ -= bytes;
  }

  /// References of two bytes can repeat a value, and each copy has room for a tensor.
  void make_room_for(size_t num_values) {
    num_values_ += num_values;
    if (num_values_ > kMaxPickledValues)
      fail("at most " + std::to_string(kMaxPickledValues) + " values", "more");
  }

  std::vector<PickleValue> trees_of(const std::vector<NodeIndex>& indices, size_t depth) {
    make_room_for(indices.size());
    std::vector<PickleValue> values;
    values.reserve(indices.size());
    for (const NodeIndex index : indices) values.push_back(tree_of(index, depth + 1));
    return values;
  }

  PickleValue value_of(const std::monostate&, size_t) { return {}; }
  PickleValue value_of(bool value, size_t) { return value; }
  PickleValue value_of(int64_t value, size_t) { return value; }
  PickleValue value_of(double value, size_t) { return value; }
  PickleValue value_of(const PickledList& list, size_t depth) { return trees_of(list.items, depth); }
  PickleValue value_of(const PickledTuple& tuple, size_t depth) {
    return PickleValue::Tuple{trees_of(tuple.items, depth)};
  }
  PickleValue value_of(const PickledGlobal& global, size_t) {
    fail("plain values and tensors", quoted_excerpt(global.name));
  }
  PickleValue value_of(const std::unique_ptr<PickledStorage>&, size_t) {
    fail("a tensor", "its storage alone");
  }

  PickleValue value_of(const std::string& text, size_t) { return text; }
  PickleValue value_of(const std::unique_ptr<PickledTensor>& tensor, size_t) { return *tensor; }

  PickleValue value_of(const PickledDict& dict, size_t depth) {
    make_room_for(dict.entries.size());
    std::set<PickleValue::Key> keys;
    PickleValue::Dict values;
    for (const auto& [key, value] : dict.entries) {
      PickleValue::Key name = key_of(key);
      if (!keys.insert(name).second) fail("each key once", "one twice");
      values.add(std::move(name), tree_of(value, depth + 1));
    }
    return values;
  }

  PickleValue::Key key_of(NodeIndex index) {
    if (const auto* integer = std::get_if<int64_t>(&nodes_[index])) return *integer;
    const auto* name = std::get_if<std::string>(&nodes_[index]);
    if (name == nullptr) fail("a string or an integer as the key", "another value");
    pay_for(index);
    return *name;
  }

  const std::vector<PickleNode>& nodes_;
  std::vector<bool> is_in_tree_;
  size_t budget_;
  size_t num_values_ = 1;  // the root
  const std::string& file_;
};

}  // namespace

PickleValue pickle_tree(const std::vector<PickleNode>& nodes, NodeIndex root, size_t pickle_bytes,
                        const std::string& file) {
  const size_t budget =
      std::min(pickle_bytes * kRepeatedBytesPerByte + kFewRepeatedBytes, kMostRepeatedBytes);
  return TreeMaker(nodes, budget, file).tree_of(root, 0);
}

}  // namespace lockstep
