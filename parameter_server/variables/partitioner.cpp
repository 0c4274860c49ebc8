#include "lockstep/parameter_server/variables/partitioner.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

int64_t check_at_least_one(const char* who, const char* what, int64_t number) {
  if (number >= 1) return number;
  throw InvalidArgument(std::string("[") + who + "] " + what + ": expected 1 or more, but got " +
                        std::to_string(number));
}

}  // namespace

int64_t VariableShape::row_bytes() const {
  if (sizes.empty()) return element_bytes;
  return std::accumulate(sizes.begin() + 1, sizes.end(), element_bytes, std::multiplies<>());
}

int64_t Partitioner::num_shards(const VariableShape& shape) const {
  if (shape.sizes.empty() || shape.num_rows() == 0) return 1;
  return std::clamp<int64_t>(wished_shards(shape), 1, shape.num_rows());
}

FixedShardsPartitioner::FixedShardsPartitioner(int64_t num_shards)
    : num_shards_(check_at_least_one("FixedShardsPartitioner", "num_shards", num_shards)) {}

int64_t FixedShardsPartitioner::wished_shards(const VariableShape& /*shape*/) const {
  return num_shards_;
}

MinSizePartitioner::MinSizePartitioner(const MinSizeOptions& options) : options_(options) {
  check_at_least_one("MinSizePartitioner", "min_shard_bytes", options.min_shard_bytes);
  check_at_least_one("MinSizePartitioner", "max_shards", options.max_shards);
}

int64_t MinSizePartitioner::wished_shards(const VariableShape& shape) const {
  return std::min(options_.max_shards, shape.num_rows() * shape.row_bytes() / options_.min_shard_bytes);
}

MaxSizePartitioner::MaxSizePartitioner(const MaxSizeOptions& options) : options_(options) {
  check_at_least_one("MaxSizePartitioner", "max_shard_bytes", options.max_shard_bytes);
  check_at_least_one("MaxSizePartitioner", "max_shards", options.max_shards);
}

int64_t MaxSizePartitioner::wished_shards(const VariableShape& shape) const {
  const int64_t row_bytes = std::max<int64_t>(1, shape.row_bytes());
  const int64_t rows = std::max<int64_t>(1, options_.max_shard_bytes / row_bytes);
  return std::min(options_.max_shards, (shape.num_rows() + rows - 1) / rows);
}

BalancedPartitioner::BalancedPartitioner(const BalancedOptions& options) : options_(options) {
  check_at_least_one("BalancedPartitioner", "num_servers", options.num_servers);
  check_at_least_one("BalancedPartitioner", "min_shard_bytes", options.min_shard_bytes);
  check_at_least_one("BalancedPartitioner", "max_shard_bytes", options.max_shard_bytes);
}

int64_t BalancedPartitioner::wished_shards(const VariableShape& shape) const {
  const int64_t bytes = shape.num_rows() * shape.row_bytes();
  const int64_t rows_of_server = (shape.num_rows() + options_.num_servers - 1) / options_.num_servers;
  const int64_t rows_of_shard =
      std::max<int64_t>(1, options_.max_shard_bytes / std::max<int64_t>(1, shape.row_bytes()));
  const int64_t shards_of_server = (rows_of_server + rows_of_shard - 1) / rows_of_shard;
  return std::min(options_.num_servers * shards_of_server, bytes / options_.min_shard_bytes);
}

std::vector<RowRange> cut_rows(int64_t num_rows, int64_t num_shards) {
  check_at_least_one("cut_rows", "num_shards", num_shards);
  if (num_rows < 0)
    throw InvalidArgument("[cut_rows] num_rows: expected 0 or more, but got " + std::to_string(num_rows));
  std::vector<RowRange> ranges;
  ranges.reserve(static_cast<size_t>(num_shards));
  int64_t begin = 0;
  for (int64_t shard = 0; shard < num_shards; ++shard) {
    const int64_t end = begin + num_rows / num_shards + (shard < num_rows % num_shards ? 1 : 0);
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

std::string shard_name(const std::string& variable, int64_t shard, int64_t num_shards) {
  return num_shards == 1 ? variable : variable + "/part_" + std::to_string(shard);
}

}  // namespace lockstep
