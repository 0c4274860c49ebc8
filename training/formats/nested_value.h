#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

/// Value as nested in Python's checkpoints: None, a boolean, a number, a string or a tensor, or a list, tuple
/// or dict of such values. StateValue is the one with torch::Tensor.
///
/// Example:
///
///     StateValue::Dict state;
///     state.add("epoch", 3);
///     int64_t epoch = *state.find("epoch")->get_if<int64_t>();
template <typename Tensor>
class NestedValue {
 public:
  /// Key of a dict.
  using Key = std::variant<std::string, int64_t>;
  struct Entry;

  using List = std::vector<NestedValue>;
  struct Tuple {
    std::vector<NestedValue> items;
  };
  /// Dict with its entries in the order in which they were added.
  struct Dict {
    std::vector<Entry> entries;

    /// Adds an entry. Its key must be new.
    void add(Key key, NestedValue value);
    /// Returns the value of a key, or null if it is missing.
    const NestedValue* find(const Key& key) const;
  };
  using Data = std::variant<std::monostate, bool, int64_t, double, std::string, Tensor, List, Tuple, Dict>;

  NestedValue() = default;  ///< Constructs None.
  template <std::same_as<bool> Bool>
  NestedValue(Bool value) : data_(value) {}  // NOLINT: implicit, for `{"epoch", 3}`
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool>) NestedValue(Integer value)
      : data_(static_cast<int64_t>(value)) {}                    // NOLINT: as above
  NestedValue(double value) : data_(value) {}                    // NOLINT: as above
  NestedValue(const char* value) : data_(std::string(value)) {}  // NOLINT: as above
  NestedValue(std::string value) : data_(std::move(value)) {}    // NOLINT: as above
  NestedValue(Tensor value) : data_(std::move(value)) {}         // NOLINT: as above
  NestedValue(List value) : data_(std::move(value)) {}           // NOLINT: as above
  NestedValue(Tuple value) : data_(std::move(value)) {}          // NOLINT: as above
  NestedValue(Dict value) : data_(std::move(value)) {}           // NOLINT: as above

  const Data& data() const { return data_; }

  /// Returns the value if it is of type `T`, else null.
  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&data_);
  }

 private:
  Data data_;
};

template <typename Tensor>
struct NestedValue<Tensor>::Entry {
  Key key;
  NestedValue value;
};

template <typename Tensor>
void NestedValue<Tensor>::Dict::add(Key key, NestedValue value) {
  entries.push_back({std::move(key), std::move(value)});
}

template <typename Tensor>
const NestedValue<Tensor>* NestedValue<Tensor>::Dict::find(const Key& key) const {
  for (const auto& entry : entries)
    if (entry.key == key) return &entry.value;
  return nullptr;
}

/// Returns the value with each tensor replaced by `convert(tensor)`.
template <typename To, typename From, typename Convert>
NestedValue<To> map_tensors(const NestedValue<From>& value, const Convert& convert) {
  using Source = NestedValue<From>;
  using Target = NestedValue<To>;
  const auto map_items = [&](const std::vector<Source>& items) {
    std::vector<Target> mapped;
    mapped.reserve(items.size());
    for (const auto& item : items) mapped.push_back(map_tensors<To>(item, convert));
    return mapped;
  };
  if (const auto* tensor = value.template get_if<From>()) return Target(To(convert(*tensor)));
  if (const auto* list = value.template get_if<typename Source::List>()) return Target(map_items(*list));
  if (const auto* tuple = value.template get_if<typename Source::Tuple>())
    return Target(typename Target::Tuple{map_items(tuple->items)});
  if (const auto* dict = value.template get_if<typename Source::Dict>()) {
    typename Target::Dict mapped;
    for (const auto& entry : dict->entries) mapped.add(entry.key, map_tensors<To>(entry.value, convert));
    return Target(std::move(mapped));
  }
  if (const auto* truth = value.template get_if<bool>()) return Target(*truth);
  if (const auto* integer = value.template get_if<int64_t>()) return Target(*integer);
  if (const auto* number = value.template get_if<double>()) return Target(*number);
  if (const auto* text = value.template get_if<std::string>()) return Target(*text);
  return Target();
}

/// Calls `visit(name, tensor)` for each tensor, in the order of map_tensors(). The name is the tensor's path,
/// such as model.conv1.weight or optimizers.adam.state.0.exp_avg.
template <typename Tensor, typename Visit>
void visit_tensors(const NestedValue<Tensor>& value, const Visit& visit, const std::string& name = "") {
  using Value = NestedValue<Tensor>;
  const auto below = [&](const std::string& key) { return name.empty() ? key : name + "." + key; };
  const auto visit_items = [&](const std::vector<Value>& items) {
    for (size_t i = 0; i < items.size(); ++i) visit_tensors(items[i], visit, below(std::to_string(i)));
  };
  if (const auto* tensor = value.template get_if<Tensor>()) visit(name, *tensor);
  if (const auto* list = value.template get_if<typename Value::List>()) visit_items(*list);
  if (const auto* tuple = value.template get_if<typename Value::Tuple>()) visit_items(tuple->items);
  if (const auto* dict = value.template get_if<typename Value::Dict>()) {
    for (const auto& [key, item] : dict->entries) {
      const auto* text = std::get_if<std::string>(&key);
      visit_tensors(item, visit, below(text != nullptr ? *text : std::to_string(std::get<int64_t>(key))));
    }
  }
}

}  // namespace lockstep
