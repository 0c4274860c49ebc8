#include "lockstep/parameter_server/shards/growing_rows.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lockstep/parameter_server/shards/memory_row_store.h"
#include "lockstep/parameter_server/shards/row_numbers.h"
#include "lockstep/parameter_server/variables/partitioner.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// Memory for the counts of rows that are not made yet: a share of the limit, or this much without one.
constexpr int64_t kShareOfCounts = 8;
constexpr int64_t kBytesOfCounts = int64_t{16} << 20;

template <typename... Parts>
[[noreturn]] void refuse_growth(const Parts&... parts) {
  throw InvalidArgument(c10::str("[RowGrowth] ", parts...));
}

const RowGrowth& checked(const RowGrowth& growth, const FilteredRows& filtered) {
  if (growth.max_bytes < 0) refuse_growth("max_bytes: expected 0 or more, but got ", growth.max_bytes);
  if (growth.num_bits < 2 || growth.num_bits > 62)
    refuse_growth("num_bits: expected 2 to 62, but got ", growth.num_bits);
  if (filtered.rows.begin < 0 || filtered.rows.end > int64_t{1} << growth.num_bits)
    refuse_growth("expected rows of 0 to 2^", growth.num_bits, ", but got ", filtered.rows.begin, " to ",
                  filtered.rows.end);
  const auto& filter = filtered.filter;
  if (filter.min_frequency < 0 || filter.min_frequency > RowCountSketch::kMaxCount)
    refuse_growth("min_frequency: expected 0 to ", RowCountSketch::kMaxCount, ", but got ",
                  filter.min_frequency);
  if (filter.steps_to_live < 0)
    refuse_growth("steps_to_live: expected 0 or more, but got ", filter.steps_to_live);
  return growth;
}

/// Returns the indices of numbers in their order.
std::vector<int64_t> ascending_order(std::span<const int64_t> numbers) {
  std::vector<int64_t> order(numbers.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto is_less = [&](int64_t one, int64_t other) {
    return numbers[static_cast<size_t>(one)] < numbers[static_cast<size_t>(other)];
  };
  if (!std::is_sorted(order.begin(), order.end(), is_less)) std::sort(order.begin(), order.end(), is_less);
  return order;
}

}  // namespace

std::byte* GrowingRows::bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

at::Tensor GrowingRows::empty_rows(const at::Tensor& like, int64_t num_rows) {
  auto sizes = like.sizes().vec();
  sizes[0] = num_rows;
  return at::empty(sizes, like.options());
}

GrowingRows::GrowingRows(const FilteredRows& filtered, const RowGrowth& growth, const at::Tensor& like,
                         const UpdateRule& rule, std::shared_ptr<RowDisk> disk)
    : filtered_(filtered),
      growth_(checked(growth, filtered)),
      like_(empty_rows(like, 0)),
      rule_(rule),
      disk_(std::move(disk)) {
  make_values(filtered_.initial, {0, 0}, like_);  // throws if they are invalid
  const ShardOptimizer example(empty_rows(like, 1), rule);
  for (const auto& [name, tensor] : example.state())
    if (tensor.dim() > 0) state_names_.push_back(name);
  row_bytes_ = static_cast<int64_t>(example.values().nbytes());
  int64_t for_rows = growth_.max_bytes;
  if (filtered_.filter.min_frequency > 1) {
    sketch_.emplace(growth_.max_bytes == 0 ? kBytesOfCounts : growth_.max_bytes / kShareOfCounts);
    if (growth_.max_bytes > 0) for_rows = std::max<int64_t>(1, for_rows - sketch_->bytes());
  }
  const int64_t record_bytes = row_bytes_ * static_cast<int64_t>(1 + state_names_.size());
  if (disk_ && growth_.max_bytes == 0)
    refuse_growth("max_bytes: expected a limit of the memory for rows that are also on disk, but got none");
  try {
    if (disk_) {
      store_ = disk_->make_store(record_bytes, for_rows);
    } else {
      store_ = std::make_unique<MemoryRowStore>(
          MemoryRowStoreOptions{.record_bytes = record_bytes, .max_bytes = for_rows});
    }
  } catch (const InvalidArgument& error) {
    refuse_growth("max_bytes: ", error.what());
  }
}

std::vector<at::Tensor> GrowingRows::parts_of(const ShardOptimizer& batch) {
  std::vector<at::Tensor> parts{batch.values()};
  for (const auto& [name, tensor] : batch.state())
    if (tensor.dim() > 0) parts.push_back(tensor);
  return parts;
}

std::vector<std::byte> GrowingRows::empty_record() const {
  return std::vector<std::byte>(static_cast<size_t>(row_bytes_) * (1 + state_names_.size()));
}

/// The values depend on the table's seed and the id alone.
at::Tensor GrowingRows::initial_row(int64_t row) const {
  const int64_t id = id_of_scattered_row(filtered_.rows.begin + row, growth_.num_bits);
  return make_values(filtered_.initial, {id, id + 1}, like_);
}

at::Tensor GrowingRows::read(std::span<const int64_t> rows) const {
  auto copies = empty_rows(like_, static_cast<int64_t>(rows.size()));
  const auto size = static_cast<size_t>(row_bytes_);
  auto* first = bytes_of(copies);
  const auto order = ascending_order(rows);
  std::vector<int64_t> expected;
  expected.reserve(order.size());
  for (const int64_t i : order)
    if (const int64_t row = rows[static_cast<size_t>(i)]; expected.empty() || expected.back() != row)
      expected.push_back(row);
  store_->expect(expected);
  for (const int64_t i : order) {
    const int64_t row = rows[static_cast<size_t>(i)];
    const std::span<std::byte> own(first + i * row_bytes_, size);
    if (!store_->read(row, own)) std::memcpy(own.data(), bytes_of(initial_row(row)), size);
  }
  return copies;
}

bool GrowingRows::admits(int64_t row) {
  // Counts are of rows of the table, so that they hold when it is split differently.
  return !sketch_ || sketch_->add(filtered_.rows.begin + row) >= filtered_.filter.min_frequency;
}

void GrowingRows::step(ShardOptimizer& shared, const at::Tensor& rows, const at::Tensor& gradients, double lr,
                       uint64_t update) {
  const auto numbers = ascending_row_numbers(rows, filtered_.rows.size(), "[GrowingRows] ");
  const auto count = static_cast<int64_t>(numbers.size());
  ShardOptimizer batch(empty_rows(like_, count), rule_);
  batch.check_rows(at::arange(count), gradients, lr);
  batch.state().front().second.copy_(shared.state().front().second);  // the count of steps

  const auto size = static_cast<size_t>(row_bytes_);
  const auto parts = parts_of(batch);
  auto record = empty_record();
  std::vector<int64_t> known, made, admitted;  // indices into `numbers`
  store_->expect(numbers);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = numbers[static_cast<size_t>(i)];
    if (store_->read(row, record)) {
      for (size_t part = 0; part < parts.size(); ++part)
        std::memcpy(bytes_of(parts[part]) + i * row_bytes_, record.data() + part * size, size);
      known.push_back(i);
    } else if (admits(row)) {  // the batch's state is that of a first step
      std::memcpy(bytes_of(parts[0]) + i * row_bytes_, bytes_of(initial_row(row)), size);
      made.push_back(i);
    } else {
      continue;
    }
    admitted.push_back(i);
  }
  store_->reserve(static_cast<int64_t>(made.size()));  // may throw, so before anything changes
  if (static_cast<int64_t>(admitted.size()) == count) {
    batch.step_rows(at::arange(count), gradients, lr);
  } else {
    const auto chosen = at::tensor(admitted, at::kLong);
    batch.step_rows(chosen, gradients.index_select(0, chosen), lr);
  }
  shared.state().front().second.copy_(batch.state().front().second);

  // Known rows first, so that new ones cannot take their places.
  for (const auto* indices : {&known, &made}) {
    for (const int64_t i : *indices) {
      for (size_t part = 0; part < parts.size(); ++part)
        std::memcpy(record.data() + part * size, bytes_of(parts[part]) + i * row_bytes_, size);
      if (!store_->write(numbers[static_cast<size_t>(i)], update, record)) break;
    }
  }
  most_bytes_ = std::max(most_bytes_, bytes());
  const auto steps_to_live = static_cast<uint64_t>(filtered_.filter.steps_to_live);
  if (steps_to_live == 0) return;
  if (update >= steps_to_live) store_->evict_before(update - steps_to_live + 1);
  if (sketch_ && update % steps_to_live == 0) sketch_->halve();
}

}  // namespace lockstep
