#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/parameter_server/shards/saved_rows.h"

namespace lockstep {

/// The rows of several parts of a table that are in a range of rows, in the order of their last update, and
/// in that of the parts within an update. Has a piece of each part in memory.
class MergedRows : public SavedRows {
 public:
  explicit MergedRows(const RowRange& rows) : range_(rows) {}
  /// Adds a part, whose updates become larger by `later`.
  void add(std::shared_ptr<SavedRows> rows, uint64_t later);

  std::optional<RowPiece> next() override;
  int64_t count_in(const RowRange& rows) const override;

 private:
  /// The next rows of a part.
  struct Part {
    std::shared_ptr<SavedRows> rows;
    int64_t later = 0;
    RowPiece piece{};  // of rows in the range
    int64_t next = 0;  // index into the piece

    int64_t update() const;
  };
  bool has_next(Part& part) const;
  RowPiece take(size_t index, int64_t most);

  const RowRange range_;
  std::vector<Part> parts_;
};

}  // namespace lockstep
