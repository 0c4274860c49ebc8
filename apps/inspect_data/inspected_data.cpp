#include "lockstep/apps/inspect_data/inspected_data.h"

#include <algorithm>
#include <numeric>

#include "lockstep/apps/convert_data/conversion_plan.h"
#include "lockstep/datasets/parquet/parquet_dataset.h"

namespace lockstep::apps {

std::vector<size_t> sampled_parts(const std::vector<int64_t>& rows, int64_t least) {
  std::vector<size_t> parts(rows.size());
  std::iota(parts.begin(), parts.end(), size_t{0});
  const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  if (least == 0 || least >= all) return parts;
  // A few more parts at a time, until those that are evenly spread have enough rows.
  const double share = static_cast<double>(least) / static_cast<double>(all);
  auto count = std::max<size_t>(1, static_cast<size_t>(share * static_cast<double>(rows.size())));
  for (; count < rows.size(); count += 1 + count / 16) {
    parts.clear();
    int64_t read = 0;
    for (size_t i = 0; i < count; ++i) {
      parts.push_back((2 * i + 1) * rows.size() / (2 * count));
      read += rows[parts.back()];
    }
    if (read >= least) return parts;
  }
  parts.resize(rows.size());
  std::iota(parts.begin(), parts.end(), size_t{0});
  return parts;
}

DataReading open_inspected_data(const InspectedData& data, ConversionProgress& progress) {
  if (data.paths.size() == 1 && is_image_place(data.paths.front())) return open_image_reading(data, progress);
  if (are_parquet_files(data.paths)) return open_parquet_reading(data, progress);
  return open_click_reading(data, progress);
}

}  // namespace lockstep::apps
