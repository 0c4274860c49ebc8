#include "lockstep/apps/shared/command_line/aligned_table.h"

#include <gtest/gtest.h>

namespace lockstep::apps {
namespace {

TEST(AlignedTable, MakesColumnsAsWideAsTheirWidestCells) {
  const TextTable rows{{"name", "n"}, {"\u00e9", "10", "last"}, {}};
  EXPECT_EQ(aligned_table(rows), "  name  n\n  \u00e9     10  last\n\n");
  EXPECT_EQ(aligned_table(rows, {.first = 1, .last = 1}), "  name   n\n  \u00e9     10  last\n\n");
  EXPECT_EQ(aligned_table(rows, kEveryColumn), "  name   n\n     \u00e9  10  last\n\n");
  EXPECT_EQ(aligned_table({}), "");
}

}  // namespace
}  // namespace lockstep::apps
