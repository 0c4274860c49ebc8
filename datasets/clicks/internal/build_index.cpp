#include "lockstep/datasets/clicks/internal/build_index.h"

#include <memory>
#include <system_error>

#include "lockstep/datasets/clicks/internal/row_scan.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/byte_source.h"

namespace lockstep {
namespace {

/// The decompressed copy of a file.
class CopiedRows {
 public:
  CopiedRows(const std::string& path, bool is_sole) : path_(path), file_(path, is_sole) {}

  void append(std::string_view bytes) {
    attempt([&] { file_.append(bytes); });
  }
  FileVersion finish() {
    attempt([&] { file_.commit(); });
    return OpenFile(path_).version();
  }

 private:
  template <typename Act>
  void attempt(const Act& act) {
    try {
      act();
    } catch (const std::system_error& error) {
      throw std::system_error(error.code(), "cannot write more than " + std::to_string(file_.size()) +
                                                " bytes of '" + path_ + "'");
    }
  }

  const std::string path_;
  NewFile file_;
};

}  // namespace

std::string write_index(const ClickFileOptions& options, const FileVersion& source, const RowsCopy& copy,
                        RowIndexWriter& writer) {
  const std::string& path = options.path;
  const auto bytes = open_byte_source(path);
  const auto found = scan_click_rows({.file = path,
                                      .skips_malformed = options.skips_malformed,
                                      .read =
                                          [&](char* into, size_t size) {
                                            const size_t got = bytes->read(into, size);
                                            if (copy.append) copy.append({into, got});
                                            return got;
                                          },
                                      .on_row = [&](uint64_t offset) { writer.add(offset, path); }});
  if (writer.num_rows() == 0)
    throw DataError(path + ": expected rows of click logs, but it has none" +
                    (found.first_malformed.empty() ? "" : ": " + found.first_malformed));
  if (OpenFile(path).version() != source)
    throw DataError(path + ": expected a file that stays as it is, but it changed while it was indexed");
  return writer.finish({.source = source,
                        .rows = copy.finish ? copy.finish() : source,
                        .num_malformed = found.num_malformed,
                        .first_malformed = found.first_malformed});
}

void build_index(const ClickFileOptions& options, const FileVersion& source, const std::string& rows_path,
                 NewFile& index) {
  RowsCopy copy;
  std::unique_ptr<CopiedRows> rows;
  if (!rows_path.empty()) {
    rows = std::make_unique<CopiedRows>(rows_path, index.is_sole());
    copy = {.append = [&](std::string_view bytes) { rows->append(bytes); },
            .finish = [&] { return rows->finish(); }};
  }
  RowIndexWriter writer([&](std::string_view bytes) { index.append(bytes); });
  index.overwrite(0, write_index(options, source, copy, writer));
}

}  // namespace lockstep
