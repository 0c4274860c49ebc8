#include "lockstep/benchmarks/parameter_server/exchange_table.h"

#include <fmt/format.h>

#include <vector>

#include "lockstep/benchmarks/bar.h"
#include "lockstep/measurement/statistics.h"

namespace lockstep::benchmarks {
namespace {

// Share of TensorPipe's bandwidth.
constexpr Bar kExchangeBar{.value = 0.7};

std::string milliseconds(const std::vector<double>& seconds) {
  return fmt::format("{:.2f} ms", measurement::median(seconds) * 1e3);
}

}  // namespace

ExchangeTable::ExchangeTable()
    : table_({"exchange", "servers", "MiB", "Lockstep", "TensorPipe", "over", "ratio", "95 % interval", "bar",
              "met"}) {}

void ExchangeTable::add(const ExchangeRow& row, const AlternatingPairs& seconds) {
  const auto ratio = measurement::median_with_interval(seconds.ratios());
  table_.add_row({row.exchange, std::to_string(row.servers), fmt::format("{:.1f}", row.bytes / (1 << 20)),
                  milliseconds(seconds.second), milliseconds(seconds.first), row.tensor_pipe,
                  fmt::format("{:.3f}", ratio.median),
                  fmt::format("{:.3f} to {:.3f}", ratio.lower, ratio.upper), kExchangeBar.str(),
                  kExchangeBar.is_met(ratio) ? "yes" : "no"});
}

std::ostream& operator<<(std::ostream& stream, const ExchangeTable& table) {
  return stream << table.table_;
}

}  // namespace lockstep::benchmarks
