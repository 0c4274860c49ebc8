#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Named numbers, such as loss, accuracy and validation_loss, in the order in which they were first set.
///
/// Example:
///
///     Logs logs;
///     logs.set("loss", 0.25);
///     std::cout << logs.at("loss") << '\n';
///     if (const auto accuracy = logs.find("accuracy")) std::cout << *accuracy << '\n';
class Logs {
 public:
  using Entry = std::pair<std::string, double>;

  void set(const std::string& name, double value) {
    for (auto& entry : entries_) {
      if (entry.first == name) {
        entry.second = value;
        return;
      }
    }
    entries_.emplace_back(name, value);
  }
  std::optional<double> find(const std::string& name) const {
    for (const auto& entry : entries_) {
      if (entry.first == name) return entry.second;
    }
    return std::nullopt;
  }
  /// Returns the number. Throws std::out_of_range, naming the numbers that there are, if it was not set.
  double at(const std::string& name) const {
    if (const auto value = find(name)) return *value;
    std::string names;
    for (const auto& entry : entries_) names += (names.empty() ? "" : ", ") + entry.first;
    throw std::out_of_range("[Logs] expected one of: " + (names.empty() ? "nothing" : names) + "; but got '" +
                            name + "'");
  }
  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  bool operator==(const Logs&) const = default;

 private:
  std::vector<Entry> entries_;
};

}  // namespace lockstep
