#include "lockstep/parameter_server/shards/growing_rows.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <unordered_set>

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

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

at::Tensor empty_rows(const at::Tensor& like, int64_t num_rows) {
  auto sizes = like.sizes().vec();
  sizes[0] = num_rows;
  return at::empty(sizes, like.options());
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

/// Throws if an int64 vector of this name does not have a number for each row.
const int64_t* numbers_in(const std::string& name, const at::Tensor& tensor, int64_t count) {
  if (!tensor.defined() || tensor.scalar_type() != at::kLong || tensor.dim() != 1 ||
      tensor.numel() != count || !tensor.is_contiguous())
    throw InvalidArgument(
        c10::str(name, ": expected ", count, " numbers of int64, but got ",
                 tensor.defined() ? c10::str(tensor.scalar_type(), " of shape ", tensor.sizes()) : "none"));
  return tensor.const_data_ptr<int64_t>();
}

}  // namespace

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
  const auto steps_to_live = static_cast<uint64_t>(filtered_.filter.steps_to_live);
  if (steps_to_live == 0) return;
  if (update >= steps_to_live) store_->evict_before(update - steps_to_live + 1);
  if (sketch_ && update % steps_to_live == 0) sketch_->halve();
}

at::Tensor GrowingRows::empty_to_save(at::Tensor like, int64_t num_rows) const {
  if (!disk_ || num_rows == 0) return empty_rows(like, num_rows);
  auto sizes = like.sizes().vec();
  sizes[0] = num_rows;
  const auto bytes = disk_->map_bytes(static_cast<size_t>(c10::multiply_integers(sizes)) * like.itemsize());
  return at::from_blob(
      bytes.get(), sizes, [bytes](void*) {}, like.options());
}

GrowingRows::Saved GrowingRows::save() const {
  const int64_t count = store_->size();
  Saved saved{empty_to_save(like_, count), {}};
  std::vector<std::byte*> parts{bytes_of(saved.values)};
  for (const auto& name : state_names_) {
    saved.state.emplace_back(name, empty_to_save(like_, count));
    parts.push_back(bytes_of(saved.state.back().second));
  }
  const auto no_numbers = at::empty({0}, at::kLong);
  const auto rows = empty_to_save(no_numbers, count), updates = empty_to_save(no_numbers, count);
  int64_t i = 0;
  store_->for_each([&](int64_t row, uint64_t update, std::span<const std::byte> record) {
    for (size_t part = 0; part < parts.size(); ++part)
      std::memcpy(parts[part] + i * row_bytes_, record.data() + static_cast<int64_t>(part) * row_bytes_,
                  static_cast<size_t>(row_bytes_));
    rows.data_ptr<int64_t>()[i] = filtered_.rows.begin + row;
    updates.data_ptr<int64_t>()[i] = static_cast<int64_t>(update);
    ++i;
  });
  saved.state.emplace_back("rows", rows);
  saved.state.emplace_back("row_last_update", updates);
  if (sketch_) saved.state.emplace_back("row_counts", sketch_->counters().clone());
  return saved;
}

void GrowingRows::restore(const Saved& saved, uint64_t update) {
  const auto part = [&](const std::string& name) {
    const auto found = std::find_if(saved.state.begin(), saved.state.end(),
                                    [&](const auto& each) { return each.first == name; });
    return found == saved.state.end() ? at::Tensor() : found->second;
  };
  const auto rows = part("rows");
  const int64_t count = rows.defined() ? rows.numel() : 0;
  const auto* numbers = numbers_in("rows", rows, count);
  const auto* updates = numbers_in("row_last_update", part("row_last_update"), count);
  std::unordered_set<int64_t> seen;
  for (int64_t i = 0; i < count; ++i) {
    if (numbers[i] < filtered_.rows.begin || numbers[i] >= filtered_.rows.end ||
        !seen.insert(numbers[i]).second)
      throw InvalidArgument(c10::str("rows: expected rows of ", filtered_.rows.begin, " to ",
                                     filtered_.rows.end - 1, ", each once, but got ", numbers[i]));
    if (updates[i] < (i == 0 ? 0 : updates[i - 1]) || static_cast<uint64_t>(updates[i]) > update)
      throw InvalidArgument(c10::str("row_last_update: expected numbers that ascend to ", update,
                                     " at most, but got ", updates[i]));
  }
  std::vector<const std::byte*> parts;
  auto sizes = like_.sizes().vec();
  sizes[0] = count;
  const auto add_part = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.sizes() != at::IntArrayRef(sizes) || !tensor.is_contiguous() ||
        tensor.scalar_type() != like_.scalar_type() || !tensor.is_cpu())
      throw InvalidArgument(
          c10::str(name, ": expected ", like_.toString(), " of shape ", at::IntArrayRef(sizes), ", but got ",
                   tensor.defined() ? c10::str(tensor.toString(), " of shape ", tensor.sizes()) : "none"));
    parts.push_back(bytes_of(tensor));
  };
  add_part("values", saved.values);
  for (const auto& name : state_names_) add_part(name, part(name));
  const auto counts = part("row_counts");
  if (sketch_ && counts.defined()) RowCountSketch::check(counts);

  store_->clear();
  if (sketch_ && counts.defined()) sketch_->restore(counts);
  auto record = empty_record();
  const auto size = static_cast<size_t>(row_bytes_);
  // A row is left out if the limit has become smaller and the last rows of the order need the memory.
  const int64_t first = std::max<int64_t>(0, count - store_->capacity());
  constexpr int64_t kRowsExpected = 4096;
  std::vector<int64_t> expected;
  for (int64_t i = first; i < count; ++i) {
    if ((i - first) % kRowsExpected == 0) {
      expected.clear();
      for (int64_t k = i; k < std::min(count, i + kRowsExpected); ++k)
        expected.push_back(numbers[k] - filtered_.rows.begin);
      std::sort(expected.begin(), expected.end());
      store_->expect(expected);
    }
    for (size_t each = 0; each < parts.size(); ++each)
      std::memcpy(record.data() + each * size, parts[each] + i * row_bytes_, size);
    store_->write(numbers[i] - filtered_.rows.begin, static_cast<uint64_t>(updates[i]), record);
  }
}

}  // namespace lockstep
