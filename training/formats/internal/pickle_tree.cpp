#include "lockstep/training/formats/internal/pickle_tree.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"

namespace lockstep {
namespace {

/// Of the tree, for each byte of the pickle: a reference of two bytes repeats a whole name.
constexpr size_t kTreeBytesPerByte = 64;
constexpr size_t kSmallTree = size_t{1} << 16;

class TreeMaker {
 public:
  TreeMaker(const std::vector<PickleNode>& nodes, size_t budget, const std::string& file)
      : nodes_(nodes), budget_(budget), file_(file) {}

  PickleValue tree_of(PicklePlace place, size_t depth) {
    if (depth == kMaxNesting)
      fail("values at most " + std::to_string(kMaxNesting) + " deep inside each other", "deeper ones");
    return std::visit([&](const auto& node) { return value_of(node, depth); }, nodes_[place]);
  }

 private:
  [[noreturn]] void fail(const std::string& expected, const std::string& actual) const {
    throw CheckpointError(file_, "data.pkl", expected, actual);
  }

  void spend(size_t bytes) {
    if (bytes > budget_) fail("values that are not repeated all over", "too many of them");
    budget_ -= bytes;
  }

  std::vector<PickleValue> trees_of(const std::vector<PicklePlace>& places, size_t depth) {
    spend(sizeof(PickleValue) * places.size());
    std::vector<PickleValue> values;
    values.reserve(places.size());
    for (const PicklePlace place : places) values.push_back(tree_of(place, depth + 1));
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

  PickleValue value_of(const std::string& text, size_t) {
    spend(text.size());
    return text;
  }

  PickleValue value_of(const std::unique_ptr<PickledTensor>& tensor, size_t) {
    spend(sizeof(PickledTensor) + tensor->storage.size() + 2 * sizeof(int64_t) * tensor->shape.size());
    return *tensor;
  }

  PickleValue value_of(const PickledDict& dict, size_t depth) {
    spend(sizeof(PickleValue::Entry) * dict.entries.size());
    std::set<PickleValue::Key> keys;
    PickleValue::Dict values;
    for (const auto& [key, value] : dict.entries) {
      PickleValue::Key name = key_of(key);
      if (!keys.insert(name).second) fail("each key once", "one twice");
      values.add(std::move(name), tree_of(value, depth + 1));
    }
    return values;
  }

  PickleValue::Key key_of(PicklePlace place) {
    if (const auto* integer = std::get_if<int64_t>(&nodes_[place])) return *integer;
    const auto* name = std::get_if<std::string>(&nodes_[place]);
    if (name == nullptr) fail("a string or an integer as the key", "another value");
    spend(2 * name->size());
    return *name;
  }

  const std::vector<PickleNode>& nodes_;
  size_t budget_;
  const std::string& file_;
};

}  // namespace

PickleValue pickle_tree(const std::vector<PickleNode>& nodes, PicklePlace root, size_t pickle_bytes,
                        const std::string& file) {
  return TreeMaker(nodes, pickle_bytes * kTreeBytesPerByte + kSmallTree, file).tree_of(root, 0);
}

}  // namespace lockstep
