// Letters whose upper case has several characters, with that and their title case: the part of Unicode's
// SpecialCasing.txt that depends on no language. Made by special_casing.py; see text.h.
#include "model/text/chat/special_casing.h"

namespace entrodraft::model::jinja {

namespace {

// clang-format off
constexpr SpecialCase kCases[] = {
    {U'\u00df', U"SS", U"Ss"}, {U'\u0149', U"\u02bcN", U"\u02bcN"},
    {U'\u01f0', U"J\u030c", U"J\u030c"}, {U'\u0390', U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {U'\u03b0', U"\u03a5\u0308\u0301", U"\u03a5\u0308\u0301"}, {U'\u0587', U"\u0535\u0552", U"\u0535\u0582"},
    {U'\u1e96', U"H\u0331", U"H\u0331"}, {U'\u1e97', U"T\u0308", U"T\u0308"},
    {U'\u1e98', U"W\u030a", U"W\u030a"}, {U'\u1e99', U"Y\u030a", U"Y\u030a"},
    {U'\u1e9a', U"A\u02be", U"A\u02be"}, {U'\u1f50', U"\u03a5\u0313", U"\u03a5\u0313"},
    {U'\u1f52', U"\u03a5\u0313\u0300", U"\u03a5\u0313\u0300"}, {U'\u1f54', U"\u03a5\u0313\u0301", U"\u03a5\u0313\u0301"},
    {U'\u1f56', U"\u03a5\u0313\u0342", U"\u03a5\u0313\u0342"}, {U'\u1f80', U"\u1f08\u0399", U"\u1f88"},
    {U'\u1f81', U"\u1f09\u0399", U"\u1f89"}, {U'\u1f82', U"\u1f0a\u0399", U"\u1f8a"},
    {U'\u1f83', U"\u1f0b\u0399", U"\u1f8b"}, {U'\u1f84', U"\u1f0c\u0399", U"\u1f8c"},
    {U'\u1f85', U"\u1f0d\u0399", U"\u1f8d"}, {U'\u1f86', U"\u1f0e\u0399", U"\u1f8e"},
    {U'\u1f87', U"\u1f0f\u0399", U"\u1f8f"}, {U'\u1f88', U"\u1f08\u0399", U"\u1f88"},
    {U'\u1f89', U"\u1f09\u0399", U"\u1f89"}, {U'\u1f8a', U"\u1f0a\u0399", U"\u1f8a"},
    {U'\u1f8b', U"\u1f0b\u0399", U"\u1f8b"}, {U'\u1f8c', U"\u1f0c\u0399", U"\u1f8c"},
    {U'\u1f8d', U"\u1f0d\u0399", U"\u1f8d"}, {U'\u1f8e', U"\u1f0e\u0399", U"\u1f8e"},
    {U'\u1f8f', U"\u1f0f\u0399", U"\u1f8f"}, {U'\u1f90', U"\u1f28\u0399", U"\u1f98"},
    {U'\u1f91', U"\u1f29\u0399", U"\u1f99"}, {U'\u1f92', U"\u1f2a\u0399", U"\u1f9a"},
    {U'\u1f93', U"\u1f2b\u0399", U"\u1f9b"}, {U'\u1f94', U"\u1f2c\u0399", U"\u1f9c"},
    {U'\u1f95', U"\u1f2d\u0399", U"\u1f9d"}, {U'\u1f96', U"\u1f2e\u0399", U"\u1f9e"},
    {U'\u1f97', U"\u1f2f\u0399", U"\u1f9f"}, {U'\u1f98', U"\u1f28\u0399", U"\u1f98"},
    {U'\u1f99', U"\u1f29\u0399", U"\u1f99"}, {U'\u1f9a', U"\u1f2a\u0399", U"\u1f9a"},
    {U'\u1f9b', U"\u1f2b\u0399", U"\u1f9b"}, {U'\u1f9c', U"\u1f2c\u0399", U"\u1f9c"},
    {U'\u1f9d', U"\u1f2d\u0399", U"\u1f9d"}, {U'\u1f9e', U"\u1f2e\u0399", U"\u1f9e"},
    {U'\u1f9f', U"\u1f2f\u0399", U"\u1f9f"}, {U'\u1fa0', U"\u1f68\u0399", U"\u1fa8"},
    {U'\u1fa1', U"\u1f69\u0399", U"\u1fa9"}, {U'\u1fa2', U"\u1f6a\u0399", U"\u1faa"},
    {U'\u1fa3', U"\u1f6b\u0399", U"\u1fab"}, {U'\u1fa4', U"\u1f6c\u0399", U"\u1fac"},
    {U'\u1fa5', U"\u1f6d\u0399", U"\u1fad"}, {U'\u1fa6', U"\u1f6e\u0399", U"\u1fae"},
    {U'\u1fa7', U"\u1f6f\u0399", U"\u1faf"}, {U'\u1fa8', U"\u1f68\u0399", U"\u1fa8"},
    {U'\u1fa9', U"\u1f69\u0399", U"\u1fa9"}, {U'\u1faa', U"\u1f6a\u0399", U"\u1faa"},
    {U'\u1fab', U"\u1f6b\u0399", U"\u1fab"}, {U'\u1fac', U"\u1f6c\u0399", U"\u1fac"},
    {U'\u1fad', U"\u1f6d\u0399", U"\u1fad"}, {U'\u1fae', U"\u1f6e\u0399", U"\u1fae"},
    {U'\u1faf', U"\u1f6f\u0399", U"\u1faf"}, {U'\u1fb2', U"\u1fba\u0399", U"\u1fba\u0345"},
    {U'\u1fb3', U"\u0391\u0399", U"\u1fbc"}, {U'\u1fb4', U"\u0386\u0399", U"\u0386\u0345"},
    {U'\u1fb6', U"\u0391\u0342", U"\u0391\u0342"}, {U'\u1fb7', U"\u0391\u0342\u0399", U"\u0391\u0342\u0345"},
    {U'\u1fbc', U"\u0391\u0399", U"\u1fbc"}, {U'\u1fc2', U"\u1fca\u0399", U"\u1fca\u0345"},
    {U'\u1fc3', U"\u0397\u0399", U"\u1fcc"}, {U'\u1fc4', U"\u0389\u0399", U"\u0389\u0345"},
    {U'\u1fc6', U"\u0397\u0342", U"\u0397\u0342"}, {U'\u1fc7', U"\u0397\u0342\u0399", U"\u0397\u0342\u0345"},
    {U'\u1fcc', U"\u0397\u0399", U"\u1fcc"}, {U'\u1fd2', U"\u0399\u0308\u0300", U"\u0399\u0308\u0300"},
    {U'\u1fd3', U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"}, {U'\u1fd6', U"\u0399\u0342", U"\u0399\u0342"},
    {U'\u1fd7', U"\u0399\u0308\u0342", U"\u0399\u0308\u0342"}, {U'\u1fe2', U"\u03a5\u0308\u0300", U"\u03a5\u0308\u0300"},
    {U'\u1fe3', U"\u03a5\u0308\u0301", U"\u03a5\u0308\u0301"}, {U'\u1fe4', U"\u03a1\u0313", U"\u03a1\u0313"},
    {U'\u1fe6', U"\u03a5\u0342", U"\u03a5\u0342"}, {U'\u1fe7', U"\u03a5\u0308\u0342", U"\u03a5\u0308\u0342"},
    {U'\u1ff2', U"\u1ffa\u0399", U"\u1ffa\u0345"}, {U'\u1ff3', U"\u03a9\u0399", U"\u1ffc"},
    {U'\u1ff4', U"\u038f\u0399", U"\u038f\u0345"}, {U'\u1ff6', U"\u03a9\u0342", U"\u03a9\u0342"},
    {U'\u1ff7', U"\u03a9\u0342\u0399", U"\u03a9\u0342\u0345"}, {U'\u1ffc', U"\u03a9\u0399", U"\u1ffc"},
    {U'\ufb00', U"FF", U"Ff"}, {U'\ufb01', U"FI", U"Fi"},
    {U'\ufb02', U"FL", U"Fl"}, {U'\ufb03', U"FFI", U"Ffi"},
    {U'\ufb04', U"FFL", U"Ffl"}, {U'\ufb05', U"ST", U"St"},
    {U'\ufb06', U"ST", U"St"}, {U'\ufb13', U"\u0544\u0546", U"\u0544\u0576"},
    {U'\ufb14', U"\u0544\u0535", U"\u0544\u0565"}, {U'\ufb15', U"\u0544\u053b", U"\u0544\u056b"},
    {U'\ufb16', U"\u054e\u0546", U"\u054e\u0576"}, {U'\ufb17', U"\u0544\u053d", U"\u0544\u056d"},
};
// clang-format on

} // namespace

std::span<const SpecialCase> special_cases() {
    return kCases;
}

} // namespace entrodraft::model::jinja
