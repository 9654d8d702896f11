"""Samples of PTX, one thing each, and modules built from them."""

HEAD = ".version 8.3\n.target sm_90a\n.address_size 64\n"

MODULE_LEVEL = (
    ".global .u32 x = 6/2*(1<<3);",
    ".global .f64 y[2] = {-1.5, 1e3};",
    ".global .f32 x = .5;",
    ".global .f32 x = 1.0+2.0;",
    ".global .f32 q=0F3f800000;",
    ".global .u32 x = 5?1:2;",
    ".global .u32 x=010;",
    ".global .u64 x=0XFFU;",
    ".global .u64 y; .global .u64 x[2]={y, generic(y)+8};",
    ".global .u8 x[] = {0xFF(x), 0xFF00(x)};",
    ".global .align 8 .v2 .f32 x[2] = {{1.0,2.0},{1.0,2.0}};",
    ".global .u32 x , y[2], $x;",
    ".weak .global .u32 z;",
    ".global .attribute(.managed) .u32 x;",
    ".const .align 4 .b8 a[4]={1,2,3,4};",
    ".global .texref t;",
    ".extern .func vprintf;",
    ".func f; .func () g (); .func f { ret; } .func g { ret; }",
    ".func f(.param .b32 a) .noreturn { trap; }",
    '.file 1 "a.c", 1, 2',
    '# 1 "x"\n',
    ".section .debug_str { L: .b8 1,2 .b32 L+4 }",
    ".visible .func (.reg .b32 r) f(.reg .b32 a){ mov.b32 r,a; ret; }",
    '.entry k() .maxntid 1,1,1 .minnctapersm 2 .maxnreg 32 .pragma "nounroll"; { ret; }',
    ".entry k(.param .u64 .ptr .global .align 16 x, .param .align 64 .b8 tm[128], .param .u32 b[3]){}",
    ".extern .shared .align 16 .b8 dyn[]; .entry k(){.reg .b32 a; ld.shared.u32 a,[dyn+16]; }",
)
"""Each stands after HEAD."""

STATEMENTS = (
    "L1:L2: ret;",
    "{ { ret; } }",
    ".reg .b32 %r<0x10>; .reg .b32 %q<2>, w; mov.b32 %r15,w;",
    "@%p setp.eq.and.s32 p|_, %a, 1, !%p;",
    "@!%p bra.uni L; L: ret;",
    "mov .u32 %a, 1 ;",
    "mov.u32 %a, WARP_SZ-1; mov.u32 %a, (1+2)*3; mov.u32 %a, !0; mov.u32 %a, ~1;",
    "mov.f64 %d, -1.5; mov.f64 %d, 1e5; mov.f64 %d, 0d3FF0000000000000;",
    "mov.u64 %b, tab+-8; mov.u64 %b, tab+8; mov.u64 %b, tab[2];",
    "ld.global.u32 %a, [%b+-8]; ld.local.u32 %a, [16];",
    "ld.global.u32 %a, tab[1]; ld.global.u32 %a, [tab+2*4]; ld.global.u32 %a, [tab+4+4];",
    "mov.b64 {%a, _}, %b;",
    "vadd.s32.u32.s32 %a, %a.b0, %a.h1, %a;",
    "mov.u32 %a, %tid.x;",
    "q: .callprototype (.param .b32 _) _ (.param .b32 _, .param .align 8 .b8 _[16]); .param .align 8 .b8 z[16]; call (%a), %b, (%a, z), q;",
    "call.uni (%a), f, (%a, -1); call none; call none, ();",
    "t: .branchtargets L, M; brx.idx %a, t; L: M: ret;",
    'bra L; L: .pragma "nounroll"; ret;',
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%a], [%b, {%a, %a}], [%a];",
    "cp.async.bulk.wait_group .read 0;",
    "elect.sync _|%p, -1; shfl.sync.idx.b32 %a|%p, %a, 0, 31, 0xffffffff;",
    ".shared .b32 s, y[2][3]; { .shared .b32 s; } .local .align 8 .b8 depot[40]; .param .align 8 .b8 q[16];",
    ".reg .v4 .f32 v; ld.global.v4.f32 v, [%b]; st.global.v2.f32 [%b], {v.x, v.y};",
)
"""Each stands inside the body of `module_with`."""


LAX = (
    "invented.thing::x.f99 %a, {%a, {1, 2}}, [1], !%p;",
    "add.s32 %a, %a, -%a;",
    "mov.u64 %b, tab-8; ld.global.u32 %a, [%b-8];",
    "L: .loc 1 2 3, function_name $L0, inlined_at 1 2 3 ret;",
    "@@DWARF .byte 1\n",
)
"""Form alone: ptxas refuses these for what they mean, or spells them otherwise."""


def module_with(body: str) -> str:
    """A module whose entry holds `body`, with a few registers and a table to name."""
    return (
        HEAD
        + ".global .u32 tab[4];\n.func (.param .b32 r) f(.param .b32 a, .param .b32 b) { ret; }\n"
        + ".func none() { ret; }\n.visible .entry k(.param .u64 x)\n{\n"
        + "    .reg .pred %p, p;\n    .reg .b32 %a;\n    .reg .b64 %b;\n    .reg .f64 %d;\n"
        + body
        + "\n}\n"
    )


ASSEMBLING = (*(HEAD + each for each in MODULE_LEVEL), *(module_with(each) for each in STATEMENTS))
MODULES = (*ASSEMBLING, *(module_with(each) for each in LAX))
