#include "lockstep/training/callbacks/fault_plan.h"

#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

struct KindName {
  std::string_view name;
  FaultKind kind;
  std::string_view place;  // the fault's target
};

constexpr std::array<KindName, 7> kKindNames{{{"kill", FaultKind::kKill, "rank"},
                                              {"stop", FaultKind::kStop, "rank"},
                                              {"term", FaultKind::kTerm, "rank"},
                                              {"int", FaultKind::kInt, "rank"},
                                              {"throw", FaultKind::kThrow, "rank"},
                                              {"nan", FaultKind::kNan, "replica"},
                                              {"ulp", FaultKind::kUlp, "replica"}}};

/// Reads the number in "rank12", if the word is "rank".
template <typename Number>
bool read_number(std::string_view text, std::string_view word, Number& number) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0;
}

std::optional<Fault> read_fault(std::string_view text) {
  const size_t at = text.find('@');
  const size_t colon = text.find(':');
  if (at == std::string_view::npos || colon == std::string_view::npos || colon < at) return std::nullopt;
  for (const auto& [name, kind, place] : kKindNames) {
    Fault fault{.kind = kind};
    if (text.substr(0, at) == name && read_number(text.substr(at + 1, colon - at - 1), place, fault.place) &&
        read_number(text.substr(colon + 1), "step", fault.step) && fault.step > 0)
      return fault;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Fault> parse_faults(const std::string& text) {
  std::vector<Fault> faults;
  std::string_view rest = text;
  for (bool is_last = false; !is_last;) {
    const size_t comma = rest.find(',');
    is_last = comma == std::string_view::npos;
    const auto part = rest.substr(0, comma);
    const auto fault = read_fault(part);
    if (!fault) {
      throw InvalidArgument(
          "[faults] expected faults such as kill@rank1:step20 or ulp@replica3:step7, with kill, stop, term, "
          "int or "
          "throw of a rank and nan or ulp of a replica, but got '" +
          std::string(part) + "'");
    }
    faults.push_back(*fault);
    if (!is_last) rest.remove_prefix(comma + 1);
  }
  return faults;
}

}  // namespace lockstep
