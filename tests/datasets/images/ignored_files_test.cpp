#include "lockstep/datasets/images/ignored_files.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(IgnoredFiles, AreCountedByKindAndNamed) {
  EXPECT_EQ(IgnoredFiles{}.describe(), "");
  EXPECT_EQ((IgnoredFiles{{"a.gif"}}.describe()), "1 .gif: a.gif");
  EXPECT_EQ((IgnoredFiles{{"cat/README"}}.describe()), "1 file without extension: cat/README");
  EXPECT_EQ((IgnoredFiles{{"cat/a.bmp", "cat/b.GIF", "cat/deep.png/", "cat/v1.2/", "dog/c.gif", "dog/x"}}
                 .describe()),
            "2 .gif, 2 folders, 1 file without extension, 1 .bmp: cat/a.bmp, cat/b.GIF, cat/deep.png/, ...");
}

TEST(IgnoredFiles, OfManyKindsAreSummarised) {
  EXPECT_EQ((IgnoredFiles{{"1.a", "2.b", "3.c", "4.d", "5.e", "6.f", "7.f"}}.describe(1)),
            "2 .f, 1 .a, 1 .b, 1 .c, 2 of other kinds: 1.a, ...");
}

}  // namespace
}  // namespace lockstep
